"""What each lane of a warp gets when lanes act together: shuffles, votes and matches."""

from collections.abc import Mapping
from typing import Any

from nogpu.kernels.memory import WARP
from nogpu.simt import arithmetic

ALL_LANES = 2**32 - 1

Given = Mapping[int, tuple[Any, ...]]  # lane: its value, and of a shuffle the lane or offset


class NoSourceError(Exception):
    """A lane asked for the value of a lane that takes no part."""


def together(name: str, lane: int, given: Given) -> Any:
    """What this lane gets from cuda.<name> when these lanes have come."""
    if name == "syncwarp":
        return None
    if name.startswith("shfl"):
        return _shuffled(name, lane, given)
    if name.startswith("match"):
        return _match(name, lane, given)
    if name == "ballot_sync":
        ballot = sum(1 << voter for voter, (vote, *_) in given.items() if vote)
        return arithmetic.wrap(ballot, 32)
    votes = [bool(value) for value, *_ in given.values()]
    if name == "eq_sync":
        return len(set(votes)) == 1
    return any(votes) if name == "any_sync" else all(votes)


def _match(name: str, lane: int, given: Given) -> Any:
    mine = given[lane][0]
    same = sum(1 << other for other, (value, *_) in given.items() if value == mine)
    if name == "match_any_sync":
        return arithmetic.wrap(same, 32)
    everyone = sum(1 << other for other in given)
    return (arithmetic.wrap(same, 32), True) if same == everyone else (0, False)


def _shuffled(name: str, lane: int, given: Given) -> Any:
    value, other = given[lane]
    source = {
        "shfl_sync": other % WARP,
        "shfl_up_sync": lane - other,
        "shfl_down_sync": lane + other,
        "shfl_xor_sync": lane ^ (other % WARP),
    }[name]
    if not 0 <= source < WARP:
        return value  # past the end of the warp a lane keeps its own value
    if source not in given:
        raise NoSourceError(source)
    return given[source][0]
