"""Accesses to memory, as columns of a table."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from nogpu.simt.program import Kind

READ, WRITE, ATOMIC = 0, 1, 2
KINDS = {Kind.LOAD: READ, Kind.STORE: WRITE, Kind.ATOMIC: ATOMIC}


class Accesses(NamedTuple):
    """A table of accesses: equally long columns. See counters for epochs, times and keys."""

    place: np.ndarray
    thread: np.ndarray
    block: np.ndarray
    epoch: np.ndarray
    time: np.ndarray
    kind: np.ndarray
    site: np.ndarray
    key: np.ndarray


def select(table: Accesses, rows: Any) -> Accesses:
    """These rows of a table."""
    return Accesses(*(column[rows] for column in table))


def joined(tables: Iterable[Accesses]) -> Accesses:
    """One table with the rows of these."""
    return Accesses(*map(np.concatenate, zip(*tables, strict=True)))


def narrowed(table: Accesses) -> Accesses:
    """The same numbers in as few bytes as they need."""
    return Accesses(
        *(column.astype(np.min_scalar_type(int(column.max(initial=0)))) for column in table)
    )
