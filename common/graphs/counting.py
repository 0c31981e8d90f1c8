"""Arrays that count: how many NumPy operations does a program take?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Counted(np.ndarray):
    """An array whose arithmetic is counted, with that of every array made of it."""

    operations = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        Counted.operations += 1
        plain = [np.asarray(x) if isinstance(x, Counted) else x for x in inputs]
        return counted(getattr(ufunc, method)(*plain, **kwargs))


def counted(value: Any) -> Counted:
    """The same numbers, counted."""
    return np.asarray(value).view(Counted)


def operations(function: Callable[..., Any], *args: Any) -> int:
    """How many operations on counted arrays function(*args) takes."""
    before = Counted.operations
    function(*args)
    return Counted.operations - before
