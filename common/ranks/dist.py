"""`dist` as a simulated rank sees it: torch.distributed's names and semantics over the network.

A link carries what it asks to the conductor: link.post(time_s, operations), link.wait(time_s, numbers) and so on. It leads
from a thread of this process (simulated.Link), or from a worker of the grader (remote.Link).
"""

import itertools
import operator
from dataclasses import dataclass

import torch
from torch.distributed import ReduceOp

from common.ranks.network import WORLD
from common.ranks.place import here, in_words

OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.AVG: "avg",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}
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


@dataclass(frozen=True)
class Group:
    """Some of the ranks, in order: what new_group returns."""

    number: int
    ranks: tuple
    me: int

    def rank(self):
        """This rank's place in the group."""
        return self.ranks.index(self.me)

    def size(self):
        """The number of ranks in the group."""
        return len(self.ranks)


class GroupMember:
    """The two groups that have names."""

    WORLD = None
    NON_GROUP_MEMBER = -100


class P2POp:
    """One entry of batch_isend_irecv: P2POp(dist.isend, tensor, peer)."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None) -> None:
        self.kind = getattr(op, "__name__", "")
        if self.kind not in ("isend", "irecv"):
            raise ValueError(f"op: {op!r}; it is dist.isend or dist.irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


class Work:
    """The handle of what goes on in the background: wait() for it before its tensor is used."""

    def __init__(self, dist, number, what, place, sent=(), write=None) -> None:
        self._dist, self._number, self._what, self._place = dist, number, what, place
        self._sent, self._write, self._over = sent, write, False

    def wait(self, timeout=None) -> bool:
        """Blocks until it is done; then the tensor may be used. Returns True."""
        _wait(self._dist, [self])
        return True

    def is_completed(self):
        """Whether it is done by now; asking takes a microsecond."""
        if self._over:
            return True
        with self._dist._recorder.pause():
            return self._dist._link.test(self._dist._tick(), self._number)

    def _finish(self, value) -> None:
        if self._over:
            return
        self._over = True
        for tensor, before in self._sent:
            if not _same(tensor, before):
                self._dist._link.race(
                    f"rank {self._dist._rank}: the tensor of {self._what} ({in_words(*self._place)}) was "
                    "changed before its wait()"
                )
        if self._write:
            self._write(value)
        self._sent, self._write = (), None


def _wait(dist, works) -> None:
    """Waits for several handles at once."""
    waited = [work for work in works if not work._over]
    values = dist._wait([work._number for work in waited])
    with dist._recorder.pause():
        for work, value in zip(waited, values, strict=True):
            work._finish(value)


class Dist:
    """torch.distributed for one simulated rank."""

    ReduceOp, P2POp, GroupMember, group = ReduceOp, P2POp, GroupMember, GroupMember

    def __init__(self, rank, world_size, link, recorder, only=None, carries=True) -> None:
        self._carries = carries  # else it only describes what is called
        self._rank, self._world_size, self._link, self._recorder = rank, world_size, link, recorder
        self._only = None if only is None else ALWAYS | set(only)
        self._world = Group(WORLD, tuple(range(world_size)), rank)

    def __getattribute__(self, name):
        if not name.startswith("_"):
            self._insist_on(name)
        return object.__getattribute__(self, name)

    def _insist_on(self, name) -> None:
        if self._only is not None and name not in self._only:
            raise AttributeError(
                f"this dist has no {name}: it has only {', '.join(sorted(self._only - ALWAYS))}"
            )

    # ------------------------------------------------------------------ who is there

    def is_available(self) -> bool:
        """True."""
        return True

    def is_initialized(self) -> bool:
        """True."""
        return True

    def get_backend(self, group=None) -> str:
        """The name of what carries the messages."""
        return "simulated"

    def get_rank(self, group=None):
        """This rank's place in the group, from 0; -1 if it is not in it."""
        return self._in(group).rank() if group != GroupMember.NON_GROUP_MEMBER else -1

    def get_world_size(self, group=None):
        """The number of ranks in the group; -1 if this one is not in it."""
        return self._in(group).size() if group != GroupMember.NON_GROUP_MEMBER else -1

    def get_process_group_ranks(self, group):
        """The ranks of the group, in order."""
        return list(self._in(group).ranks)

    def get_global_rank(self, group, group_rank):
        """The rank, among all, of a place in the group."""
        return self._in(group).ranks[group_rank]

    def get_group_rank(self, group, global_rank):
        """The place in the group of a rank among all."""
        return self._in(group).ranks.index(global_rank)

    def new_group(self, ranks=None, **_):
        """The Group of these ranks; NON_GROUP_MEMBER on a rank outside. Every rank calls it, for every group."""
        ranks = sorted(range(self._world_size) if ranks is None else ranks)
        if (
            not ranks
            or len(set(ranks)) < len(ranks)
            or not set(ranks) <= set(range(self._world_size))
        ):
            raise ValueError(
                f"ranks: {ranks}; they are different numbers from 0 to {self._world_size - 1}, one at least"
            )
        number = self._link.new_group(ranks)
        return (
            Group(number, tuple(ranks), self._rank)
            if self._rank in ranks
            else GroupMember.NON_GROUP_MEMBER
        )

    # ------------------------------------------------------------------ messages

    def send(self, tensor, dst=None, group=None, tag=0, group_dst=None) -> None:
        """Sends the tensor; returns when its receiver has it."""
        self._message("send", tensor, dst, group, tag, group_dst).wait()

    def recv(self, tensor, src=None, group=None, tag=0, group_src=None):
        """Receives into the tensor, from any rank if src is None; returns the sender's rank."""
        work = self._message("recv", tensor, src, group, tag, group_src)
        work.wait()
        return src if src is not None else self._link.sender(work._number)

    def isend(self, tensor, dst=None, group=None, tag=0, group_dst=None):
        """Begins to send the tensor, which must stay as it is until wait() on the handle returned."""
        return self._message("isend", tensor, dst, group, tag, group_dst)

    def irecv(self, tensor, src=None, group=None, tag=0, group_src=None):
        """Begins to receive into the tensor, which has what came after wait() on the handle returned."""
        return self._message("irecv", tensor, src, group, tag, group_src)

    def batch_isend_irecv(self, p2p_op_list):
        """Begins all these messages at once; returns their handles."""
        if not p2p_op_list or any(type(op) is not P2POp for op in p2p_op_list):
            raise ValueError("p2p_op_list: it is a list of dist.P2POp, one at least")
        place = here()
        made = [
            self._operation(op.kind, op.tensor, op.peer, op.group, op.tag, op.group_peer, place)
            for op in p2p_op_list
        ]
        return self._works(made, place)

    def _message(self, what, tensor, peer=None, group=None, tag=0, group_peer=None):
        place = here()
        return self._works(
            [self._operation(what, tensor, peer, group, tag, group_peer, place)], place
        )[0]

    def _operation(self, what, tensor, peer, group, tag, group_peer, place):
        """(operation, what Work needs) of one message."""
        group, kind = self._in(group), what.removeprefix("i")
        peer, tag = _member(what, group, peer, group_peer), _whole(f"{what}: tag", tag)
        if peer is None and kind == "send":
            raise ValueError(f"{what}: it needs a dst")
        if peer == self._rank:
            raise ValueError(f"{what}: rank {peer} is this rank itself")
        if tag < 0:
            raise ValueError(f"{what}: tag {tag}; it is a number from 0 on")
        _insist(what, tensor)
        operation = {
            "kind": kind,
            "what": what,
            "where": place,
            "peer": peer,
            "tag": tag,
            "group": group.number,
            "elements": tensor.numel(),
            "itemsize": tensor.element_size(),
            "dtype": tensor.dtype,
        }
        if kind == "recv":
            return operation, what, (), lambda value: tensor.data.copy_(value.view(tensor.shape))
        if not self._carries:
            return operation, what, (), None
        with self._recorder.pause():
            operation["payload"] = tensor.detach().clone()
        return operation, what, ((tensor, operation["payload"]),), None

    # ------------------------------------------------------------------ collectives

    def barrier(self, group=None, async_op=False, device_ids=None):
        """Returns when every rank of the group has called it."""
        return self._collective("barrier", None, None, group, async_op)

    def broadcast(self, tensor, src=None, group=None, async_op=False, group_src=None):
        """Leaves src's tensor in every rank's."""
        return self._collective("broadcast", tensor, tensor, group, async_op, root=(src, group_src))

    def reduce(self, tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
        """Leaves the sum (or op) over ranks in dst's tensor; what the others hold afterwards is not defined."""
        return self._collective(
            "reduce", tensor, tensor, group, async_op, root=(dst, group_dst), op=op
        )

    def all_reduce(self, tensor, op=ReduceOp.SUM, group=None, async_op=False):
        """Leaves the sum (or op) over ranks in every rank's tensor."""
        return self._collective("all_reduce", tensor, tensor, group, async_op, op=op)

    def all_gather(self, tensor_list, tensor, group=None, async_op=False):
        """Leaves every rank's tensor in tensor_list, by rank."""
        return self._collective("all_gather", tensor, list(tensor_list), group, async_op)

    def all_gather_into_tensor(self, output_tensor, input_tensor, group=None, async_op=False):
        """Leaves every rank's tensor in output_tensor, one after the other along its first dimension."""
        return self._collective(
            "all_gather", input_tensor, output_tensor, group, async_op, "all_gather_into_tensor"
        )

    all_gather_single = all_gather_into_tensor  # its name from PyTorch 2.13 on

    def gather(
        self, tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None
    ):
        """Leaves every rank's tensor in dst's gather_list, by rank."""
        out = list(gather_list) if gather_list else None
        return self._collective("gather", tensor, out, group, async_op, root=(dst, group_dst))

    def scatter(
        self, tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None
    ):
        """Leaves entry r of src's scatter_list in rank r's tensor."""
        return self._collective(
            "scatter", tensor, tensor, group, async_op, root=(src, group_src), parts=scatter_list
        )

    def reduce_scatter(self, output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
        """Leaves the sum (or op) over ranks of entry r of their lists in rank r's output."""
        return self._collective(
            "reduce_scatter", output, output, group, async_op, op=op, parts=input_list
        )

    def reduce_scatter_tensor(self, output, input, op=ReduceOp.SUM, group=None, async_op=False):
        """Leaves in rank r's output the sum (or op) over ranks of piece r of their inputs, cut along the first dimension."""
        _insist("reduce_scatter_tensor", input)
        parts = _pieces("input", input, self._in(group).size(), output)
        return self._collective(
            "reduce_scatter",
            output,
            output,
            group,
            async_op,
            "reduce_scatter_tensor",
            op=op,
            parts=parts,
        )

    reduce_scatter_single = reduce_scatter_tensor  # its name from PyTorch 2.13 on

    def all_to_all(self, output_tensor_list, input_tensor_list, group=None, async_op=False):
        """Leaves entry r of rank q's input list in entry q of rank r's output list."""
        return self._collective(
            "all_to_all", None, list(output_tensor_list), group, async_op, parts=input_tensor_list
        )

    def all_to_all_single(
        self,
        output,
        input,
        output_split_sizes=None,
        input_split_sizes=None,
        group=None,
        async_op=False,
    ):
        """Leaves piece r of rank q's input in piece q of rank r's output; equal pieces unless sizes are given."""
        p = self._in(group).size()
        pieces = [
            _split(tensor, sizes, p)
            for tensor, sizes in ((output, output_split_sizes), (input, input_split_sizes))
        ]
        return self._collective(
            "all_to_all", None, pieces[0], group, async_op, "all_to_all_single", parts=pieces[1]
        )

    def _collective(
        self, name, tensor, out, group, async_op, what=None, root=None, op=None, parts=None
    ):
        """Posts a collective. tensor: whose shape all ranks must share; out: where the result goes; parts: a list brought."""
        what, place, group = what or name, here(), self._in(group)
        outs = out if type(out) is list else [] if out is None else [out]
        for each in itertools.chain(
            [] if tensor is None else [tensor], [] if parts is None else parts, outs
        ):
            _insist(what, each)
        operation = {
            "kind": "collective",
            "what": what,
            "name": name,
            "where": place,
            "group": group.number,
        }
        if op is not None:
            if op not in OPS:
                raise ValueError(
                    f"{what}: there is no op {op} here; there are {', '.join(OPS.values()).upper()}"
                )
            operation["op"] = OPS[op]
        if root is not None:
            if root == (None, None) and name in ("broadcast", "reduce"):
                raise ValueError(f"{what}: it needs a {'src' if name == 'broadcast' else 'dst'}")
            operation["root"] = _member(what, group, *((0, None) if root == (None, None) else root))
        parts = _checked_parts(what, name, parts, group, operation.get("root"), self._rank, tensor)
        if type(out) is list:
            _checked_outputs(what, out, group, tensor)
        elif name == "all_gather" and (
            out.numel() != group.size() * tensor.numel() or out.dtype != tensor.dtype
        ):
            raise ValueError(
                f"{what}: the output has {out.numel()} elements of {out.dtype}, the {group.size()} inputs "
                f"{tensor.numel()} of {tensor.dtype} each"
            )
        first = tensor if tensor is not None else parts[0] if parts else None
        operation |= {
            "shape": None if tensor is None else tuple(tensor.shape),
            "dtype": None if first is None else first.dtype,
            "elements": 0 if tensor is None else tensor.numel(),
            "itemsize": 0 if first is None else first.element_size(),
        }
        operation["bytes"] = operation["elements"] * operation["itemsize"]
        if name == "all_to_all":
            operation |= {
                "in_splits": [part.nbytes for part in parts],
                "out_splits": [part.nbytes for part in out],
            }
            operation["bytes"] = sum(operation["in_splits"])
        brings = (
            tensor is not None
            and operation.get("root", self._rank) == self._rank
            or name in ("reduce", "gather")
        )
        sources = (
            [] if not self._carries else parts if parts is not None else [tensor] if brings else []
        )
        with self._recorder.pause():
            copies = [source.detach().clone() for source in sources]
        if copies:
            operation["payload"] = copies if parts is not None else copies[0]
        sent = tuple(zip(sources, copies, strict=True))
        work = self._works([(operation, what, sent, lambda value: _write(out, value))], place)[0]
        if async_op or not self._carries:
            return work
        work.wait()
        return None

    # ------------------------------------------------------------------ what they share

    def _in(self, group):
        """The Group meant by an argument group=."""
        if group is None:
            return self._world
        if type(group) is not Group:
            raise ValueError(
                f"group: {group!r}; this rank is not in it"
                if group == GroupMember.NON_GROUP_MEMBER
                else f"group: {group!r}; it is what new_group returned"
            )
        return group

    def _tick(self):
        self._recorder.clock_s += 1e-6
        return self._recorder.clock_s

    def _works(self, made, place):
        self._recorder.look()
        with self._recorder.pause():
            numbers = self._link.post(self._recorder.clock_s, [operation for operation, *_ in made])
        return [
            Work(self, number, what, place, sent, write)
            for number, (_, what, sent, write) in zip(numbers, made, strict=True)
        ]

    def _wait(self, numbers):
        with self._recorder.pause():
            self._recorder.clock_s, values = self._link.wait(self._recorder.clock_s, numbers)
        return values


def _member(what, group, rank, group_rank):
    """The rank that is meant by a number among all, or by one in the group; None if neither is given."""
    if rank is not None and group_rank is not None:
        raise ValueError(
            f"{what}: a rank among all, {rank}, and one in the group, {group_rank}; give one of them"
        )
    if rank is None and group_rank is None:
        return None
    number = _whole(f"{what}: rank", rank if group_rank is None else group_rank)
    known = group.ranks if group_rank is None else range(group.size())
    if number not in known:
        raise ValueError(f"{what}: rank {number} is none of {list(known)}")
    return number if group_rank is None else group.ranks[number]


def _whole(what, number):
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{what} {number!r}; it is a whole number") from None


def _insist(what, tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what}: a {type(tensor).__name__} where a tensor belongs")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what}: the tensor must be dense; this one is {str(tensor.layout).removeprefix('torch.')}"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"{what}: the tensor must be contiguous; this one has shape {tuple(tensor.shape)} and strides "
            f"{tensor.stride()}"
        )


def _same(tensor, before):
    """Whether every bit is as it was."""
    if (
        tensor.numel() == before.numel() == 0
    ):  # an empty tensor from NumPy has strides of 0, and no view as bytes
        return True
    now, before = (
        each.detach().reshape(-1).contiguous().view(torch.uint8) for each in (tensor, before)
    )
    return torch.equal(now, before)


def _pieces(name, tensor, count, like):
    if tensor.numel() != count * like.numel():
        raise ValueError(
            f"{name}: {tensor.numel()} elements; they are {count} times output's {like.numel()}"
        )
    return (
        [piece.view(like.shape) for piece in tensor.reshape(-1).split(max(1, like.numel()))]
        if like.numel()
        else [torch.empty_like(like) for _ in range(count)]
    )


def _split(tensor, sizes, count):
    if sizes is None or len(sizes) == 0:
        if tensor.shape[0] % count:
            raise ValueError(
                f"all_to_all_single: {tensor.shape[0]} rows don't divide by {count} ranks; give split sizes"
            )
        sizes = [tensor.shape[0] // count] * count
    if len(sizes) != count or sum(sizes) != tensor.shape[0]:
        raise ValueError(
            f"all_to_all_single: split sizes {list(sizes)} for {tensor.shape[0]} rows and {count} ranks"
        )
    return list(tensor.split(list(sizes)))


def _checked_parts(what, name, parts, group, root, me, tensor):
    """The list that this rank brings, of as many tensors as there are ranks; None where it brings none."""
    if name == "scatter" and root != me:
        if parts:
            raise ValueError(f"{what}: only the source, rank {root}, gives a scatter_list")
        return None
    if name not in ("scatter", "reduce_scatter", "all_to_all"):
        return None
    if parts is None or len(parts) != group.size():
        raise ValueError(
            f"{what}: a list of {0 if parts is None else len(parts)} tensors for {group.size()} ranks"
        )
    if name != "all_to_all" and any(
        part.shape != tensor.shape or part.dtype != tensor.dtype for part in parts
    ):
        shapes = [tuple(part.shape) for part in parts]
        raise ValueError(f"{what}: the list has shapes {shapes}, the output {tuple(tensor.shape)}")
    return list(parts)


def _checked_outputs(what, out, group, tensor) -> None:
    if len(out) != group.size():
        raise ValueError(f"{what}: a list of {len(out)} tensors for {group.size()} ranks")
    if tensor is not None and any(
        each.numel() != tensor.numel() or each.dtype != tensor.dtype for each in out
    ):
        raise ValueError(
            f"{what}: the list has shapes {[tuple(each.shape) for each in out]}, the tensor {tuple(tensor.shape)}"
        )


def _write(out, value) -> None:
    """Puts a collective's result where the caller wants it."""
    if value is None or out is None:
        return
    if type(out) is list:
        for each, part in zip(out, value, strict=True):
            each.data.copy_(part.view(each.shape))
        return
    if type(value) is list:
        value = torch.cat([part.reshape(-1) for part in value])
    out.data.copy_(value.view(out.shape))
