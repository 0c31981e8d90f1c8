"""The garbage collector of a process that has imported what it needs."""

import functools
import gc


@functools.cache
def keep_what_is_imported() -> None:
    """What is there by now is never freed, so no collection needs to look at it.

    Only the first call of a process does it: what a later one found may be garbage.
    """
    gc.freeze()
