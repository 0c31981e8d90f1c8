"""torch.distributed's functions: each checks its arguments and describes its call as an operation.

Subclasses say what happens to the operation: `dist.Dist` posts it to the network, `real.Described`
only notes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from nogpu.ranks import arguments, groups
from nogpu.ranks.arguments import Tensors
from nogpu.ranks.call_site import CallSite
from nogpu.ranks.groups import Group, GroupMember
from nogpu.ranks.operations import COLLECTIVES, OPS, Collective, Operation, Receive, Send
from nogpu.ranks.recorder import Recorder

NAMES = {what: name for name, whats in COLLECTIVES.items() for what in whats}
TORCH_OPS = {getattr(ReduceOp, op.upper()): op for op in OPS}

Rank = int | None
OfGroup = Group | int | None  # an argument group=: what new_group returned, or None for all ranks
Out = torch.Tensor | list[torch.Tensor] | None
Copy = tuple[torch.Tensor, torch.Tensor]  # a tensor that is sent, and what it held at the call


class Call(NamedTuple):
    """An operation, and what its handle needs.

    sent: the tensors that are sent. write: puts what arrives where the caller wants it.
    """

    operation: Operation
    sent: Sequence[Copy] = ()
    write: Callable[[Any], object] | None = None


@dataclass(eq=False)
class P2POp:
    """One entry of batch_isend_irecv: P2POp(dist.isend, tensor, peer)."""

    op: Callable
    tensor: torch.Tensor
    peer: Rank = None
    group: Any = None
    tag: int = 0
    group_peer: Rank = None

    def __post_init__(self) -> None:
        self.kind = getattr(self.op, "__name__", "")
        if self.kind not in ("isend", "irecv"):
            raise ValueError(f"op: {self.op!r}; it must be dist.isend or dist.irecv")


class Calls(ABC):
    """The functions of torch.distributed for one rank."""

    ReduceOp, P2POp, GroupMember, group = ReduceOp, P2POp, GroupMember, GroupMember

    def __init__(self, rank: int, world_size: int, recorder: Recorder) -> None:
        self._rank, self._world_size, self._recorder = rank, world_size, recorder
        self._world = groups.world(world_size, rank)

    @abstractmethod
    def _begin(self, calls: list[Call]) -> list[Any]:
        """Begin these calls; return a handle for each one."""

    @abstractmethod
    def _complete(self, call: Call, async_op: bool) -> Any:
        """Begin this call; return its handle if async_op, else what the function returns."""

    @abstractmethod
    def _copies(self, tensors: Tensors) -> list[Copy]:
        """Copies of tensors that are sent; none if they are not sent from here."""

    @abstractmethod
    def _number_of_new_group(self, ranks: list[int]) -> int:
        """The number of a new group."""

    def is_available(self) -> bool:
        """True."""
        return True

    def is_initialized(self) -> bool:
        """True."""
        return True

    def get_backend(self, group: OfGroup = None) -> str:
        """The name of what carries the messages."""
        return "simulated"

    def get_rank(self, group: OfGroup = None) -> int:
        """This rank's place in the group, from 0; -1 if it is not in it."""
        return -1 if group == GroupMember.NON_GROUP_MEMBER else self._group(group).rank()

    def get_world_size(self, group: OfGroup = None) -> int:
        """The number of ranks in the group; -1 if this one is not in it."""
        return -1 if group == GroupMember.NON_GROUP_MEMBER else self._group(group).size()

    def new_group(self, ranks: Sequence[int] | None = None, **_: Any) -> Group | int:
        """The Group of these ranks; NON_GROUP_MEMBER on a rank outside.

        Every rank calls it, for every group.
        """
        members = groups.sorted_members(ranks, self._world_size)
        number = self._number_of_new_group(members)
        if self._rank not in members:
            return GroupMember.NON_GROUP_MEMBER
        return Group(number, tuple(members), self._rank)

    def send(
        self,
        tensor: torch.Tensor,
        dst: Rank = None,
        group: OfGroup = None,
        tag: int = 0,
        group_dst: Rank = None,
    ) -> Any:
        """Sends the tensor; returns when its receiver has it."""
        call = self._message("send", tensor, dst, group, tag, group_dst, CallSite.current())
        return self._complete(call, False)

    def recv(
        self,
        tensor: torch.Tensor,
        src: Rank = None,
        group: OfGroup = None,
        tag: int = 0,
        group_src: Rank = None,
    ) -> Any:
        """Receives into the tensor, from any rank if src is None; returns the sender's rank."""
        call = self._message("recv", tensor, src, group, tag, group_src, CallSite.current())
        return self._complete(call, False)

    def isend(
        self,
        tensor: torch.Tensor,
        dst: Rank = None,
        group: OfGroup = None,
        tag: int = 0,
        group_dst: Rank = None,
    ) -> Any:
        """Begins to send the tensor, which must not change before wait() on the handle returns."""
        call = self._message("isend", tensor, dst, group, tag, group_dst, CallSite.current())
        return self._complete(call, True)

    def irecv(
        self,
        tensor: torch.Tensor,
        src: Rank = None,
        group: OfGroup = None,
        tag: int = 0,
        group_src: Rank = None,
    ) -> Any:
        """Begins to receive into the tensor, to be used after wait() on the handle returns."""
        call = self._message("irecv", tensor, src, group, tag, group_src, CallSite.current())
        return self._complete(call, True)

    def batch_isend_irecv(self, p2p_op_list: Sequence[P2POp]) -> list[Any]:
        """Begins all these messages at once; returns their handles."""
        if not p2p_op_list or any(type(op) is not P2POp for op in p2p_op_list):
            raise ValueError("p2p_op_list: it must be a list of at least one dist.P2POp")
        site = CallSite.current()
        return self._begin(
            [
                self._message(op.kind, op.tensor, op.peer, op.group, op.tag, op.group_peer, site)
                for op in p2p_op_list
            ]
        )

    def barrier(
        self, group: OfGroup = None, async_op: bool = False, device_ids: object = None
    ) -> Any:
        """Returns when every rank of the group has called it."""
        return self._collective("barrier", None, None, group, async_op)

    def broadcast(
        self,
        tensor: torch.Tensor,
        src: Rank = None,
        group: OfGroup = None,
        async_op: bool = False,
        group_src: Rank = None,
    ) -> Any:
        """Leaves src's tensor in every rank's."""
        root = self._root("broadcast", group, "src", src, group_src)
        return self._collective("broadcast", tensor, tensor, group, async_op, root=root)

    def reduce(
        self,
        tensor: torch.Tensor,
        dst: Rank = None,
        op: Any = ReduceOp.SUM,
        group: OfGroup = None,
        async_op: bool = False,
        group_dst: Rank = None,
    ) -> Any:
        """Leaves the sum (or op) over ranks in dst's tensor.

        What the other ranks' tensors hold afterwards is not defined.
        """
        root = self._root("reduce", group, "dst", dst, group_dst)
        return self._collective("reduce", tensor, tensor, group, async_op, root=root, op=op)

    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: Any = ReduceOp.SUM,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves the sum (or op) over ranks in every rank's tensor."""
        return self._collective("all_reduce", tensor, tensor, group, async_op, op=op)

    def all_gather(
        self,
        tensor_list: Tensors,
        tensor: torch.Tensor,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves every rank's tensor in tensor_list, by rank."""
        return self._collective("all_gather", tensor, list(tensor_list), group, async_op)

    def all_gather_into_tensor(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves every rank's tensor in output_tensor, one after the other."""
        return self._collective(
            "all_gather_into_tensor", input_tensor, output_tensor, group, async_op
        )

    all_gather_single = all_gather_into_tensor  # its name from PyTorch 2.13 on

    def gather(
        self,
        tensor: torch.Tensor,
        gather_list: Tensors | None = None,
        dst: Rank = None,
        group: OfGroup = None,
        async_op: bool = False,
        group_dst: Rank = None,
    ) -> Any:
        """Leaves every rank's tensor in dst's gather_list, by rank."""
        root = self._root("gather", group, None, dst, group_dst)
        out = list(gather_list) if gather_list else None
        return self._collective("gather", tensor, out, group, async_op, root=root)

    def scatter(
        self,
        tensor: torch.Tensor,
        scatter_list: Tensors | None = None,
        src: Rank = None,
        group: OfGroup = None,
        async_op: bool = False,
        group_src: Rank = None,
    ) -> Any:
        """Leaves entry r of src's scatter_list in rank r's tensor."""
        root = self._root("scatter", group, None, src, group_src)
        return self._collective(
            "scatter", tensor, tensor, group, async_op, root=root, parts=scatter_list
        )

    def reduce_scatter(
        self,
        output: torch.Tensor,
        input_list: Tensors,
        op: Any = ReduceOp.SUM,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves the sum (or op) over ranks of entry r of their lists in rank r's output."""
        return self._collective(
            "reduce_scatter", output, output, group, async_op, op=op, parts=input_list
        )

    def reduce_scatter_tensor(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: Any = ReduceOp.SUM,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves in rank r's output the sum (or op) over ranks of piece r of their inputs.

        The pieces are cut along the first dimension.
        """
        what = "reduce_scatter_tensor"
        arguments.validate_tensor(what, input)
        parts = arguments.equal_pieces(input, self._group(group).size(), output)
        return self._collective(what, output, output, group, async_op, op=op, parts=parts)

    reduce_scatter_single = reduce_scatter_tensor  # its name from PyTorch 2.13 on

    def all_to_all(
        self,
        output_tensor_list: Tensors,
        input_tensor_list: Tensors,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves entry r of rank q's input list in entry q of rank r's output list."""
        outputs = list(output_tensor_list)
        return self._collective(
            "all_to_all", None, outputs, group, async_op, parts=input_tensor_list
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: OfGroup = None,
        async_op: bool = False,
    ) -> Any:
        """Leaves piece r of rank q's input in piece q of rank r's output.

        The pieces are equal unless sizes are given.
        """
        p = self._group(group).size()
        outputs = arguments.split_rows(output, output_split_sizes, p)
        parts = arguments.split_rows(input, input_split_sizes, p)
        return self._collective("all_to_all_single", None, outputs, group, async_op, parts=parts)

    def _group(self, group: Any) -> Group:
        """The Group meant by an argument group=."""
        if group is None:
            return self._world
        if type(group) is not Group:
            raise ValueError(
                f"group: rank {self._rank} is not in this group; only its members may use it"
                if group == GroupMember.NON_GROUP_MEMBER
                else f"group: {group!r}; it must be what new_group returned"
            )
        return group

    def _message(
        self,
        what: str,
        tensor: Any,
        peer: Any,
        group: Any,
        tag: Any,
        group_peer: Any,
        site: CallSite,
    ) -> Call:
        members = self._group(group)
        number = members.member(what, peer, group_peer)
        tag = groups.whole_number(f"{what}: tag", tag)
        if number is None and what.endswith("send"):
            raise ValueError(f"{what}: it needs a dst")
        if number == self._rank:
            raise ValueError(f"{what}: rank {number} is this rank itself")
        if tag < 0:
            raise ValueError(f"{what}: tag {tag}; it must be a number from 0 on")
        arguments.validate_tensor(what, tensor)
        envelope = what, site, members.number
        content = tag, tensor.numel(), tensor.dtype
        if number is None or what.endswith("recv"):
            receive = Receive(*envelope, number, *content)
            return Call(receive, write=lambda value: _copy(tensor, value))
        sent = self._copies([tensor])
        return Call(Send(*envelope, number, *content, sent[0][1] if sent else None), sent)

    def _root(self, what: str, group: Any, name: str | None, rank: Any, group_rank: Any) -> int:
        """The root of a collective. name: of the argument, if it must be given."""
        if name is None and rank is None and group_rank is None:
            rank = 0
        root = self._group(group).member(what, rank, group_rank)
        if root is None:
            raise ValueError(f"{what}: it needs a {name}")
        return root

    def _collective(
        self,
        what: str,
        tensor: torch.Tensor | None,
        out: Out,
        group: Any,
        async_op: bool,
        root: int | None = None,
        op: Any = None,
        parts: Tensors | None = None,
    ) -> Any:
        """Begin a collective.

        tensor: whose shape all ranks share. out: where the result goes. parts: what this rank
        brings for each member.
        """
        members, site = self._group(group), CallSite.current()
        self._recorder.exchanged(NAMES[what], parts, out)
        parts = self._validated(what, tensor, out, members.size(), root, parts)
        first = tensor if tensor is not None else parts[0] if parts else None
        sent = self._copies(parts if parts is not None else self._brought(what, tensor, root))
        copies = [copy for _, copy in sent]
        exchanges = NAMES[what] == "all_to_all"
        operation = Collective(
            what,
            site,
            members.number,
            NAMES[what],
            _op(what, op),
            root,
            None if tensor is None else tuple(tensor.shape),
            None if first is None else first.dtype,
            [part.nbytes for part in parts or ()] if exchanges else [],
            [part.nbytes for part in _as_list(out)] if exchanges else [],
            copies if copies and parts is not None else copies[0] if copies else None,
        )
        return self._complete(Call(operation, sent, lambda value: _write(out, value)), async_op)

    def _validated(
        self, what: str, tensor: torch.Tensor | None, out: Out, p: int, root: int | None, parts: Any
    ) -> Tensors | None:
        """The list that this rank brings, if it brings one; raises unless all tensors fit."""
        given = [] if tensor is None else [tensor]
        for one in (*given, *(() if parts is None else parts), *_as_list(out)):
            arguments.validate_tensor(what, one)
        if what == "scatter" and root != self._rank:
            if parts:
                raise ValueError(f"{what}: only the source, rank {root}, gives a scatter_list")
            parts = None
        elif NAMES[what] in ("scatter", "reduce_scatter", "all_to_all"):
            arguments.validate_input_list(what, parts, p, tensor)
            parts = list(parts)
        if isinstance(out, list):
            arguments.validate_output_list(what, out, p, tensor)
        elif what == "all_gather_into_tensor":
            arguments.validate_gathered(what, out, p, tensor)
        return parts

    def _brought(self, what: str, tensor: torch.Tensor | None, root: int | None) -> Tensors:
        """The tensor that this rank brings, if it brings no list."""
        brings = root in (None, self._rank) or what in ("reduce", "gather")
        return _as_list(tensor) if brings else []


def _op(what: str, op: Any) -> str | None:
    """The name of a ReduceOp."""
    if op is None:
        return None
    if op not in TORCH_OPS:
        raise ValueError(f"{what}: there is no op {op} here; there are {', '.join(OPS).upper()}")
    return TORCH_OPS[op]


def _as_list(value: Out) -> list[torch.Tensor]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _write(out: Out, value: Out) -> None:
    """Put a collective's result where the caller wants it."""
    if value is None or out is None:
        return
    if isinstance(out, list):
        for own, part in zip(out, _as_list(value), strict=True):
            _copy(own, part)
        return
    if isinstance(value, list):
        value = torch.cat([part.reshape(-1) for part in value])
    _copy(out, value)


def _copy(out: torch.Tensor, value: torch.Tensor) -> None:
    arguments.require_memory("what arrives", out)
    out.data.copy_(value.view(out.shape))
