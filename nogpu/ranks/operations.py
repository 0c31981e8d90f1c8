"""An operation: what a rank posts to the network. A send, a receive, or its part in a collective.

`calls` makes them. From a worker to its grader they cross as plain data: the worker calls
`as_data`, and the grader `from_data`, which trusts nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

import torch

from nogpu.ranks.call_site import CallSite

WORLD = 0  # the number of the group of all ranks

# Each collective, and the functions of torch.distributed that begin it.
COLLECTIVES = {
    "barrier": ("barrier",),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather", "all_gather_into_tensor"),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter_tensor"),
    "all_to_all": ("all_to_all", "all_to_all_single"),
}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
REDUCING = {"reduce", "all_reduce", "reduce_scatter"}
OPS = ("sum", "product", "min", "max", "avg", "band", "bor", "bxor")


@dataclass(frozen=True, slots=True, eq=False)
class _Posted:
    """What every operation says."""

    what: str  # the function of torch.distributed that was called
    call_site: CallSite
    group: int

    def without_payload(self) -> Self:
        """The same operation without its tensors, which then need not stay in memory."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Send(_Posted):
    """One message to another rank."""

    peer: int
    tag: int
    elements: int
    dtype: torch.dtype
    payload: torch.Tensor | None  # None if torch.distributed itself carries the message

    def without_payload(self) -> Self:
        return dataclasses.replace(self, payload=None)


@dataclass(frozen=True, slots=True, eq=False)
class Receive(_Posted):
    """One message from another rank."""

    peer: int | None  # None: from any rank
    tag: int
    elements: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Collective(_Posted):
    """One rank's part in a collective.

    shape: of the tensor that the collective is about, the same on every rank. payload: what this
    rank brings, a list where each member of the group gets its own tensor.
    """

    name: str
    op: str | None
    root: int | None
    shape: tuple[int, ...] | None
    dtype: torch.dtype | None
    in_bytes: list[int]  # of an all_to_all: to each member
    out_bytes: list[int]  # of an all_to_all: from each member
    payload: torch.Tensor | list[torch.Tensor] | None

    @property
    def elements(self) -> int:
        """Elements of the tensor that the collective is about."""
        return 0 if self.shape is None else math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return 0 if self.dtype is None else self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of that tensor; of an all_to_all, of all that this rank brings."""
        return sum(self.in_bytes) if self.name == "all_to_all" else self.elements * self.itemsize

    def without_payload(self) -> Self:
        return dataclasses.replace(self, payload=None)


Operation = Send | Receive | Collective
KINDS: dict[str, Callable[..., Operation]] = {
    kind.__name__: kind for kind in (Send, Receive, Collective)
}
FIELDS = {
    kind.__name__: [field.name for field in dataclasses.fields(kind)]
    for kind in (Send, Receive, Collective)
}


def as_data(operation: Operation) -> dict[str, Any]:
    """The operation as numbers, strings, lists, dtypes and tensors."""
    kind = type(operation).__name__
    data = {name: getattr(operation, name) for name in FIELDS[kind]}
    return {"kind": kind, **data, "call_site": tuple(operation.call_site)}


def from_data(data: Any, rank: int, groups: Mapping[int, Sequence[int]]) -> Operation:
    """The operation that this rank's worker described; ValueError if it is malformed.

    groups: the members of each group, by its number. A student's process may send anything, so
    each field is checked.
    """
    kind: Any = data.get("kind") if type(data) is dict else None
    _require(_is_one_of(kind, KINDS) and kind, f"its kind is not one of {', '.join(KINDS)}")
    _require(data.keys() == {"kind", *FIELDS[kind]}, f"a {kind} has {', '.join(FIELDS[kind])}")
    fields: dict[str, Any] = {name: data[name] for name in FIELDS[kind]}
    site, group = fields["call_site"], fields["group"]
    _require(
        type(site) is tuple and len(site) == 2 and _is_count(site[0]) and type(site[1]) is str,
        "call_site is not a line's number and text",
    )
    _require(_is_count(group) and group in groups, "group is not the number of a group")
    _require(rank in groups[group], f"rank {rank} is not in group {group}")
    operation = KINDS[kind](**{**fields, "call_site": CallSite(*site)})
    if isinstance(operation, Collective):
        _validate_collective(operation, rank, groups[group])
    else:
        _validate_message(operation, rank, groups[group])
    return operation


def _validate_message(message: Send | Receive, rank: int, members: Sequence[int]) -> None:
    peer, names = message.peer, ("send", "isend") if type(message) is Send else ("recv", "irecv")
    _require(_is_one_of(message.what, names), f"what is not one of {', '.join(names)}")
    if peer is not None or isinstance(message, Send):
        _require(_is_count(peer), "peer is not a rank")
        _require(
            peer in members and peer != rank,
            f"rank {rank} can't exchange a message with rank {peer}",
        )
    _require(_is_count(message.tag), "tag is not a whole number from 0 on")
    _require(_is_count(message.elements), "elements is not a whole number from 0 on")
    _require(isinstance(message.dtype, torch.dtype), "dtype is not a dtype")
    if isinstance(message, Send):
        _require(
            _is_tensor(message.payload, message.dtype)
            and message.payload.numel() == message.elements,
            f"{message.what}: the tensor does not have the elements and dtype that the Send states",
        )


def _validate_collective(call: Collective, rank: int, members: Sequence[int]) -> None:
    name, p = call.name, len(members)
    _require(_is_one_of(name, COLLECTIVES), f"name is not one of {', '.join(COLLECTIVES)}")
    names = COLLECTIVES[name]
    _require(_is_one_of(call.what, names), f"what is not one of {', '.join(names)}")
    ops = OPS if name in REDUCING else (None,)
    _require(_is_one_of(call.op, ops), f"{name}: op is not one of {', '.join(map(str, ops))}")
    _require(
        _is_count(call.root) and call.root in members if name in ROOTED else call.root is None,
        f"{name}: root is not a rank of the group" if name in ROOTED else f"{name} has no root",
    )
    _require(
        call.dtype is None if name == "barrier" else isinstance(call.dtype, torch.dtype),
        f"{name}: dtype is not a dtype",
    )
    _require(
        call.shape is None
        if name in ("barrier", "all_to_all")
        else type(call.shape) is tuple and all(map(_is_count, call.shape)),
        f"{name}: shape is not a tensor's shape",
    )
    sizes = p if name == "all_to_all" else 0
    for given in (call.in_bytes, call.out_bytes):
        _require(
            type(given) is list and len(given) == sizes and all(map(_is_count, given)),
            f"{name}: in_bytes and out_bytes are not lists of {sizes} sizes",
        )
    _require(
        _brings_what_it_states(call, rank, p),
        f"{name}: the tensors do not have the shape and dtype that the Collective states",
    )


def _brings_what_it_states(call: Collective, rank: int, p: int) -> bool:
    """Whether the payload is what this rank has to bring to such a collective."""
    name, payload = call.name, call.payload
    if name == "barrier" or name in ("broadcast", "scatter") and call.root != rank:
        return payload is None
    if name not in ("scatter", "reduce_scatter", "all_to_all"):
        return _is_tensor(payload, call.dtype) and payload.shape == call.shape
    if type(payload) is not list or len(payload) != p:
        return False
    if not all(_is_tensor(part, call.dtype) for part in payload):
        return False
    if name == "all_to_all":
        return [part.nbytes for part in payload] == call.in_bytes
    return all(part.shape == call.shape for part in payload)


def _is_tensor(value: Any, dtype: torch.dtype | None) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.dtype == dtype


def _is_one_of(value: Any, choices: Container[str | None]) -> bool:
    return type(value) in (str, type(None)) and value in choices


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(f"malformed operation: {sentence}")
