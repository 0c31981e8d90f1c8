"""The garbage collector of a process that has imported what it needs."""

import contextlib
import functools
import gc
from collections.abc import Iterator


@functools.cache
def keep_what_is_imported() -> None:
    """What is there by now is never freed, so no collection needs to look at it.

    Only the first call of a process does it: what a later one found may be garbage.
    """
    gc.freeze()


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """Imports in here are quicker: nearly all that they make stays, and no collection looks at it.

    Afterwards it is kept (see above).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
        keep_what_is_imported()
    finally:
        if collects:
            gc.enable()
