"""CUDA graphs: launches recorded once and replayed together, and what they forbid."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from common.hardware import device, timing

OPERATORS, ELEMENTS = 50, 4096


def chain(x: Tensor) -> Tensor:
    """OPERATORS small kernels, one after the other."""
    for _ in range(OPERATORS):
        x = x * 1.01
    return x


def lines() -> Iterator[str]:
    """What a GPU does with a chain of small kernels, launched and replayed; or why it does not."""
    if not device.has_gpu():
        yield "No GPU here, so this cell records nothing. (CUDA graphs exist on NVIDIA GPUs only.)"
        return
    x = torch.ones(ELEMENTS, device="cuda")
    graph, result = recorded(x)
    launched_s, replayed_s = (
        timing.measure(chain, x).median_s,
        timing.measure(graph.replay).median_s,
    )
    yield f"{OPERATORS} launches: {1e6 * launched_s:.0f} µs; one replay: {1e6 * replayed_s:.0f} µs"
    other = torch.full_like(x, 2.0)
    graph.replay()
    torch.cuda.synchronize()
    yield f"the input bound to a new tensor: {float(result[0]):.2f}, want {_want(other)}"
    x.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    yield f"copied to the recorded address:  {float(result[0]):.2f}, want {_want(other)}"
    yield f"if x.sum() > 0, while recording: {refusal(x)}"


def recorded(x: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The recorded chain on x, and the tensor that each replay writes."""
    side = torch.cuda.Stream()  # a first run outside of the recording, as PyTorch asks for
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        chain(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(x)
    return graph, result


def refusal(x: Tensor) -> str:
    """What CUDA says if the host waits for a result while launches are recorded."""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            bool(x.sum() > 0)
    except RuntimeError as problem:
        return str(problem).strip().splitlines()[0]
    return "no error"


def _want(x: Tensor) -> str:
    return f"{float(chain(x)[0]):.2f}"
