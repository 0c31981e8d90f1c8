"""`dist` as a simulated rank sees it: torch.distributed's functions over a link to the network."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from nogpu.ranks.arguments import Tensors, require_memory
from nogpu.ranks.calls import Call, Calls, Copy
from nogpu.ranks.link import Link
from nogpu.ranks.operations import Receive
from nogpu.ranks.recorder import Recorder

ALWAYS = {
    "get_rank",
    "get_world_size",
    "get_backend",
    "is_initialized",
    "is_available",
    "ReduceOp",
    "P2POp",
    "group",
    "GroupMember",
}
ASKING_S = 1e-6


class Dist(Calls):
    """torch.distributed for one simulated rank."""

    def __init__(self, rank: int, world_size: int, link: Link, recorder: Recorder) -> None:
        super().__init__(rank, world_size, recorder)
        self._link = link

    def _begin(self, calls: list[Call]) -> "list[Work]":
        self._recorder.begin()
        with self._recorder.pause():
            operations = [call.operation for call in calls]
            numbers = self._link.post(self._recorder.clock_s, operations)
        return [Work(self, number, call) for number, call in zip(numbers, calls, strict=True)]

    def _complete(self, call: Call, async_op: bool) -> Any:
        (work,) = self._begin([call])
        if async_op:
            return work
        work.wait()
        if not isinstance(call.operation, Receive):
            return None
        peer = call.operation.peer
        return self._link.sender(work._number) if peer is None else peer

    def _copies(self, tensors: Tensors) -> list[Copy]:
        with self._recorder.pause():
            return [(tensor, tensor.detach().clone()) for tensor in tensors]

    def _number_of_new_group(self, ranks: list[int]) -> int:
        return self._link.new_group(ranks)

    def _wait(self, numbers: Sequence[int]) -> list[Any]:
        with self._recorder.pause():
            self._recorder.clock_s, values = self._link.wait(self._recorder.clock_s, numbers)
        return values

    def _test(self, number: int) -> bool:
        self._recorder.clock_s += ASKING_S
        with self._recorder.pause():
            return self._link.test(self._recorder.clock_s, number)


class Work:
    """The handle of what goes on in the background: wait() for it before its tensor is used."""

    def __init__(self, dist: Dist, number: int, call: Call) -> None:
        self._dist, self._number = dist, number
        self._what, self._call_site = call.operation.what, call.operation.call_site
        self._sent, self._write, self._over = call.sent, call.write, False

    def wait(self, timeout: object = None) -> bool:
        """Blocks until it is done; then the tensor may be used. Returns True."""
        if not self._over:
            (value,) = self._dist._wait([self._number])
            with self._dist._recorder.pause():
                self._finish(value)
        return True

    def is_completed(self) -> bool:
        """Whether it is done by now; asking takes a microsecond."""
        return self._over or self._dist._test(self._number)

    def _finish(self, value: Any) -> None:
        self._over = True
        for tensor, before in self._sent:
            require_memory(f"{self._what} ({self._call_site})", tensor)
            if not _same_bits(tensor, before):
                self._dist._link.race(
                    f"rank {self._dist._rank}: the tensor of {self._what} "
                    f"({self._call_site}) was changed before its wait()"
                )
        if self._write:
            self._write(value)
        self._sent, self._write = (), None


class Restricted:
    """A dist that has only some of its names."""

    def __init__(self, dist: Any, names: Iterable[str]) -> None:
        self._dist, self._names = dist, set(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._names and name not in ALWAYS:
            known = ", ".join(sorted(self._names - ALWAYS))
            raise AttributeError(f"this dist has no {name}: it has only {known}")
        return getattr(self._dist, name)


def restricted(dist: Any, only: Iterable[str] | None) -> Any:
    """The dist with only these names and those that it always has; all of them if only is None."""
    return dist if only is None else Restricted(dist, only)


def _same_bits(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether the tensor holds what it held before."""
    # No element or one may have a stride of 0, as NumPy's and expanded tensors do: then there is no
    # view as bytes.
    now, then = (
        one.detach().reshape(-1).contiguous().as_strided((one.numel(),), (1,)).view(torch.uint8)
        for one in (tensor, before)
    )
    return torch.equal(now, then)
