"""torch.distributed itself, with notes of each call: the operation, its beginning and its end."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed

from nogpu.ranks.arguments import Tensors
from nogpu.ranks.calls import Call, Calls, Copy, P2POp
from nogpu.ranks.groups import GroupMember
from nogpu.ranks.operations import Operation
from nogpu.ranks.replay import Note
from nogpu.ranks.stopwatch import Stopwatch

NOTED = (
    "send",
    "recv",
    "isend",
    "irecv",
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
)
RENAMED = {
    "all_gather_into_tensor": "all_gather_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
}  # by PyTorch 2.13


class Notes:
    """What a rank called, with the time."""

    def __init__(self, clock: Stopwatch) -> None:
        self.clock = clock
        self.notes: list[tuple[str, Any, Sequence]] = []
        self.operations = self.groups = 0

    def post(self, operations: list[Operation]) -> list[int]:
        """Note that these operations begin; return their numbers."""
        numbers = list(range(self.operations, self.operations + len(operations)))
        self.operations += len(operations)
        self._note("post", operations)
        return numbers

    def received_from(self, sender: int) -> None:
        """Note who sent the message of the receive that was posted last."""
        kind, mark, (receive,) = self.notes[-1]
        self.notes[-1] = kind, mark, [replace(receive, peer=sender)]

    def waited(self, numbers: Sequence[int]) -> None:
        """Note that these operations are over."""
        self._note("wait", numbers)

    def new_group(self, ranks: list[int]) -> int:
        """Note a new group; return its number."""
        self.groups += 1
        self._note("group", ranks)
        return self.groups

    def report(self) -> list[Note]:
        """All notes, with their times in seconds."""
        return [(kind, self.clock.read(mark), content) for kind, mark, content in self.notes]

    def _note(self, kind: str, content: Sequence) -> None:
        self.notes.append((kind, self.clock.mark(), content))


class Described(Calls):
    """Describes each call in the notes, and returns its number."""

    def __init__(self, rank: int, world_size: int, notes: Notes) -> None:
        super().__init__(rank, world_size, notes.clock)
        self._notes = notes

    def _begin(self, calls: list[Call]) -> list[int]:
        self._notes.clock.look()
        return self._notes.post([call.operation for call in calls])

    def _complete(self, call: Call, async_op: bool) -> int:
        return self._begin([call])[0]

    def _copies(self, tensors: Tensors) -> list[Copy]:
        return []

    def _number_of_new_group(self, ranks: list[int]) -> int:
        return self._notes.new_group(ranks)


class Handle:
    """torch.distributed's handle; it notes when its wait() is over."""

    def __init__(self, work: Any, numbers: Sequence[int], notes: Notes) -> None:
        self._work, self._numbers, self._notes = work, numbers, notes

    def wait(self, *args: Any, **kwargs: Any) -> bool:
        """Like torch.distributed's."""
        if self._numbers:  # gloo would wait a second time for ever
            self._work.wait(*args, **kwargs)
            self._notes.waited(self._numbers)
            self._numbers = ()
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


class Real:
    """torch.distributed, with notes of each call that moves data."""

    P2POp = P2POp

    def __init__(self, rank: int, world_size: int, clock: Stopwatch) -> None:
        self._notes = Notes(clock)
        self._described = Described(rank, world_size, self._notes)
        self._groups: dict[Any, Any] = {}  # our Group of each of torch.distributed's
        for name in NOTED:
            setattr(self, name, self._noted(name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(torch.distributed, name)

    def new_group(self, ranks: Sequence[int] | None = None, **options: Any) -> Any:
        """Like torch.distributed's."""
        ours = self._described.new_group(ranks)
        group = torch.distributed.new_group(ranks, **options)
        self._groups[group] = ours
        return group

    def batch_isend_irecv(self, p2p_op_list: Sequence[P2POp]) -> list[Handle]:
        """Like torch.distributed's."""
        numbers = self._described.batch_isend_irecv(
            [
                replace(op, group=self._ours(op.group)) if type(op) is P2POp else op
                for op in p2p_op_list
            ]
        )
        works = torch.distributed.batch_isend_irecv(
            [
                torch.distributed.P2POp(
                    getattr(torch.distributed, op.kind),
                    op.tensor,
                    op.peer,
                    op.group,
                    op.tag,
                    op.group_peer,
                )
                for op in p2p_op_list
            ]
        )
        if len(works) < len(numbers):  # NCCL has one handle for all
            return [Handle(work, numbers, self._notes) for work in works]
        return [
            Handle(work, [number], self._notes) for work, number in zip(works, numbers, strict=True)
        ]

    def _noted(self, name: str) -> Callable[..., Any]:
        """torch.distributed's function of this name, which notes its calls."""
        function, describe = _of_torch(name), getattr(self._described, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            ours = {key: self._ours(value) for key, value in kwargs.items()}
            number = describe(*map(self._ours, args), **ours)
            returned = function(*args, **kwargs)
            if name == "recv":
                self._notes.received_from(returned)
            elif returned is not None:
                return Handle(returned, [number], self._notes)
            self._notes.waited([number])
            return returned

        call.__name__ = name
        return call

    def _ours(self, value: Any) -> Any:
        """Our Group in place of one of torch.distributed's; any other argument as it is."""
        if value is torch.distributed.group.WORLD:
            return None
        if value is torch.distributed.GroupMember.NON_GROUP_MEMBER:
            return GroupMember.NON_GROUP_MEMBER
        is_group = isinstance(value, torch.distributed.ProcessGroup)
        return self._groups.get(value, value) if is_group else value


class Packed:
    """The handle of an all_to_all whose tensors cross as one."""

    def __init__(self, work: Any, received: torch.Tensor, outputs: Tensors) -> None:
        self._work, self._received, self._outputs = work, received, outputs

    def wait(self, *args: Any, **kwargs: Any) -> bool:
        """Like torch.distributed's."""
        self._work.wait(*args, **kwargs)
        pieces = self._received.split([output.numel() for output in self._outputs])
        for output, piece in zip(self._outputs, pieces, strict=True):
            output.detach().copy_(piece.view(output.shape))
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _all_to_all(
    output_tensor_list: Tensors,
    input_tensor_list: Tensors,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Like torch.distributed's.

    It uses all_to_all_single if the backend has only that: gloo, with PyTorch 2.11.
    """
    dist = torch.distributed
    try:
        return dist.all_to_all(list(output_tensor_list), list(input_tensor_list), group, async_op)
    except RuntimeError as error:
        if "does not support alltoall" not in str(error):
            raise
    out_sizes = [tensor.numel() for tensor in output_tensor_list]
    in_sizes = [tensor.numel() for tensor in input_tensor_list]
    sent = torch.cat([tensor.detach().flatten() for tensor in input_tensor_list])
    received = sent.new_empty(sum(out_sizes))
    work = dist.all_to_all_single(received, sent, out_sizes, in_sizes, group, async_op=True)
    packed = Packed(work, received, output_tensor_list)
    if async_op:
        return packed
    packed.wait()
    return None


def _of_torch(name: str) -> Callable[..., Any]:
    """torch.distributed's function, by the name that this PyTorch has for it."""
    if name == "all_to_all":
        return _all_to_all
    for names in RENAMED.items():
        if name in names:
            name = next(known for known in reversed(names) if hasattr(torch.distributed, known))
    return getattr(torch.distributed, name)
