"""torch.distributed itself, with a note of each call: which message or collective, and when it began and was over."""

import torch.distributed

from common.ranks.dist import Dist, GroupMember, P2POp

MESSAGES = ("send", "recv", "isend", "irecv")
COLLECTIVES = (
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
    """The link of a Dist that carries nothing: it keeps what was called, with the time."""

    def __init__(self, clock) -> None:
        self.clock, self.events, self.count, self.groups = clock, [], 0, 0

    def post(self, _, operations):
        """The numbers of these operations."""
        numbers = list(range(self.count, self.count + len(operations)))
        self.count += len(operations)
        self.events.append(("post", self.clock.mark(), operations))
        return numbers

    def waited(self, numbers) -> None:
        """These operations are over."""
        self.events.append(("wait", self.clock.mark(), numbers))

    def new_group(self, ranks):
        """The number of a new group."""
        self.groups += 1
        self.events.append(("group", self.clock.mark(), ranks))
        return self.groups

    def report(self):
        """The events as plain data: (kind, time_s, operations or numbers or ranks)."""
        return [(kind, self.clock.read(mark), what) for kind, mark, what in self.events]


class Handle:
    """torch.distributed's handle; when its wait() is over is noted."""

    def __init__(self, work, numbers, notes) -> None:
        self._work, self._numbers, self._notes = work, numbers, notes

    def wait(self, *args, **kwargs) -> bool:
        """As torch.distributed's."""
        if self._numbers:  # gloo would wait a second time for ever
            self._work.wait(*args, **kwargs)
            self._notes.waited(self._numbers)
            self._numbers = ()
        return True

    def __getattr__(self, name):
        return getattr(self._work, name)


class Real:
    """torch.distributed with each call noted; what is not noted is torch.distributed's own."""

    P2POp = P2POp

    def __init__(self, rank, world_size, clock, only=None) -> None:
        self._notes, self._groups = Notes(clock), {}
        self._like = Dist(
            rank, world_size, self._notes, clock, carries=False
        )  # describes what is called
        self._allowed = Dist(rank, world_size, self._notes, clock, only)
        for name in MESSAGES:
            setattr(self, name, self._message(name))
        for name in COLLECTIVES:
            setattr(self, name, self._collective(name))

    def __getattribute__(self, name):
        if not name.startswith("_"):
            self._allowed._insist_on(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._allowed._insist_on(name)  # Python comes here, too, when __getattribute__ has refused
        return getattr(torch.distributed, name)

    def new_group(self, ranks=None, **options):
        """As torch.distributed's."""
        like = self._like.new_group(ranks)
        group = torch.distributed.new_group(ranks, **options)
        self._groups[group] = like
        return group

    def batch_isend_irecv(self, p2p_op_list):
        """As torch.distributed's."""
        like = self._like.batch_isend_irecv(
            [
                P2POp(op.op, op.tensor, op.peer, self._told(op.group), op.tag, op.group_peer)
                if type(op) is P2POp
                else op
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
        numbers = [work._number for work in like]
        if len(works) == len(numbers):
            return [
                Handle(work, [number], self._notes)
                for work, number in zip(works, numbers, strict=True)
            ]
        return [Handle(work, numbers, self._notes) for work in works]  # NCCL has one handle for all

    def _message(self, name):
        real = getattr(torch.distributed, name)
        peer = "dst" if name.endswith("send") else "src"
        names = {peer: "peer", f"group_{peer}": "group_peer"}

        def call(tensor, *args, **kwargs):
            told = {names.get(key, key): self._told(value) for key, value in kwargs.items()}
            number = self._like._message(name, tensor, *map(self._told, args), **told)._number
            returned = real(tensor, *args, **kwargs)
            if name.startswith("i"):
                return Handle(returned, [number], self._notes)
            if name == "recv":
                self._notes.events[-1][2][0]["peer"] = returned
            self._notes.waited([number])
            return returned

        call.__name__ = name
        return call

    def _collective(self, name):
        real, describe = _of_torch(name), getattr(self._like, name)

        def call(*args, **kwargs):
            told = {key: self._told(value) for key, value in kwargs.items()}
            number = describe(*map(self._told, args), **told)._number
            returned = real(*args, **kwargs)
            if returned is not None:  # asked for with async_op=True
                return Handle(returned, [number], self._notes)
            self._notes.waited([number])
            return None

        call.__name__ = name
        return call

    def _told(self, value):
        """Our description in place of a group of torch.distributed's."""
        if value is torch.distributed.group.WORLD:
            return None
        if value is torch.distributed.GroupMember.NON_GROUP_MEMBER:
            return GroupMember.NON_GROUP_MEMBER
        return (
            self._groups.get(value, value)
            if isinstance(value, torch.distributed.ProcessGroup)
            else value
        )


class Packed:
    """The handle of an all_to_all whose tensors cross as one."""

    def __init__(self, work, received, tensors) -> None:
        self._work, self._received, self._tensors = work, received, tensors

    def wait(self, *args, **kwargs) -> bool:
        """As torch.distributed's."""
        self._work.wait(*args, **kwargs)
        for tensor, piece in zip(
            self._tensors,
            self._received.split([each.numel() for each in self._tensors]),
            strict=True,
        ):
            tensor.detach().copy_(piece.view(tensor.shape))
        return True

    def __getattr__(self, name):
        return getattr(self._work, name)


def _all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """torch.distributed's; by all_to_all_single where the backend has only that: gloo, with PyTorch 2.11."""
    dist, lists = torch.distributed, (output_tensor_list, input_tensor_list)
    try:
        return dist.all_to_all(*lists, group, async_op)
    except RuntimeError as error:
        if "does not support alltoall" not in str(error):
            raise
    sizes = [[tensor.numel() for tensor in each] for each in lists]
    sent = torch.cat([tensor.detach().flatten() for tensor in input_tensor_list])
    received = sent.new_empty(sum(sizes[0]))
    work = Packed(
        dist.all_to_all_single(received, sent, *sizes, group, async_op=True),
        received,
        output_tensor_list,
    )
    if async_op:
        return work
    work.wait()
    return None


def _of_torch(name):
    """torch.distributed's function, by the name that this PyTorch wants it called."""
    if name == "all_to_all":
        return _all_to_all
    for pair in RENAMED.items():
        if name in pair:
            name = next(each for each in reversed(pair) if hasattr(torch.distributed, each))
    return getattr(torch.distributed, name)
