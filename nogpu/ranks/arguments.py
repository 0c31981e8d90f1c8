"""The tensors that a rank passes to dist: are they what the function needs?"""

from collections.abc import Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]


def validate_tensor(what: str, tensor: Any) -> None:
    """Raise unless this can cross as one block of memory."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what}: a {type(tensor).__name__} where a tensor belongs")
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        raise ValueError(f"{what}: the tensor must be dense; this one is {layout}")
    if not tensor.is_contiguous():
        raise ValueError(
            f"{what}: the tensor must be contiguous; this one has shape {tuple(tensor.shape)} "
            f"and strides {tensor.stride()}"
        )
    require_memory(what, tensor)


def require_memory(what: str, tensor: torch.Tensor) -> None:
    """Raise if the tensor's storage was resized below it: to touch it would end the process."""
    count = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    if tensor.numel() and not tensor.is_meta and tensor.untyped_storage().nbytes() < count:
        raise ValueError(
            f"{what}: the memory of this tensor of {tensor.numel()} elements was released; "
            "wait() for the handle first"
        )


def validate_input_list(
    what: str, parts: Tensors | None, p: int, like: torch.Tensor | None
) -> None:
    """Raise unless there is one tensor per rank, each with the shape and dtype of `like`."""
    if parts is None or len(parts) != p:
        count = 0 if parts is None else len(parts)
        raise ValueError(f"{what}: a list of {count} tensors for {p} ranks")
    if like is not None and any(
        part.shape != like.shape or part.dtype != like.dtype for part in parts
    ):
        shapes = [tuple(part.shape) for part in parts]
        raise ValueError(f"{what}: the list has shapes {shapes}, the output {tuple(like.shape)}")


def validate_output_list(what: str, outputs: Tensors, p: int, like: torch.Tensor | None) -> None:
    """Raise unless there is one output per rank, each with as many elements as `like`."""
    if len(outputs) != p:
        raise ValueError(f"{what}: a list of {len(outputs)} tensors for {p} ranks")
    if like is not None and any(
        output.numel() != like.numel() or output.dtype != like.dtype for output in outputs
    ):
        shapes = [tuple(output.shape) for output in outputs]
        raise ValueError(f"{what}: the list has shapes {shapes}, the tensor {tuple(like.shape)}")


def validate_gathered(what: str, output: Any, p: int, tensor: Any) -> None:
    """Raise unless the output has room for one such tensor per rank."""
    if output.numel() != p * tensor.numel() or output.dtype != tensor.dtype:
        raise ValueError(
            f"{what}: the output has {output.numel()} elements of {output.dtype}, "
            f"the {p} inputs {tensor.numel()} of {tensor.dtype} each"
        )


def equal_pieces(tensor: torch.Tensor, p: int, like: torch.Tensor) -> list[torch.Tensor]:
    """The tensor in p pieces with the shape of `like`."""
    count = like.numel()
    if tensor.numel() != p * count:
        raise ValueError(
            f"input: {tensor.numel()} elements; it must have {p} times output's {count}"
        )
    if not count:
        return [torch.empty_like(like) for _ in range(p)]
    return [piece.view(like.shape) for piece in tensor.reshape(-1).split(count)]


def split_rows(tensor: torch.Tensor, sizes: Sequence[int] | None, p: int) -> list[torch.Tensor]:
    """The tensor's rows in p pieces: equal ones, or of these sizes."""
    rows = tensor.shape[0]
    if sizes is None or len(sizes) == 0:
        if rows % p:
            raise ValueError(
                f"all_to_all_single: {rows} rows don't divide by {p} ranks; give split sizes"
            )
        sizes = [rows // p] * p
    if len(sizes) != p or sum(sizes) != rows:
        raise ValueError(
            f"all_to_all_single: split sizes {list(sizes)} for {rows} rows and {p} ranks"
        )
    return list(tensor.split(list(sizes)))
