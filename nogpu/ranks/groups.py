"""Groups of ranks, as torch.distributed has them."""

import operator
from dataclasses import dataclass
from typing import Any

from nogpu.ranks.operations import WORLD


@dataclass(frozen=True)
class Group:
    """Some of the ranks, in order: what new_group returns."""

    number: int
    ranks: tuple[int, ...]
    me: int

    def rank(self) -> int:
        """This rank's place in the group."""
        return self.ranks.index(self.me)

    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.ranks)

    def member(self, what: str, rank: Any, group_rank: Any) -> int | None:
        """The rank meant by a number among all ranks, or by a place in the group.

        None if neither is given.
        """
        if rank is None and group_rank is None:
            return None
        if rank is not None and group_rank is not None:
            raise ValueError(
                f"{what}: a rank among all, {rank}, and one in the group, {group_rank}; "
                "give one of them"
            )
        number = whole_number(f"{what}: rank", rank if group_rank is None else group_rank)
        known = self.ranks if group_rank is None else range(self.size())
        if number not in known:
            raise ValueError(f"{what}: rank {number} is not one of {list(known)}")
        return number if group_rank is None else self.ranks[number]


class GroupMember:
    """The two groups that have names."""

    WORLD = None
    NON_GROUP_MEMBER = -100


def world(world_size: int, rank: int) -> Group:
    """The group of all ranks."""
    return Group(WORLD, tuple(range(world_size)), rank)


def sorted_members(ranks: Any, world_size: int) -> list[int]:
    """The ranks that an argument of new_group names, in order; all if it is None."""
    everyone = range(world_size)
    members = sorted(everyone if ranks is None else ranks)
    if not members or len(set(members)) < len(members) or not set(members) <= set(everyone):
        raise ValueError(
            f"ranks: {members}; they must be different numbers from 0 to {world_size - 1}, "
            "at least one"
        )
    return members


def whole_number(what: str, number: Any) -> int:
    """The number as an int, so that NumPy's and PyTorch's integers are accepted."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{what} {number!r}; it must be a whole number") from None
