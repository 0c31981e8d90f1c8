"""What a command can't do, and why. The command line prints the text of these errors."""

import difflib
from collections.abc import Callable, Iterable


class CommandError(Exception):
    """A command can't do what was asked. The text is one sentence for the person who called it."""


class InputError(CommandError, ValueError):
    """Something given can't be used. The text says what was given and what is allowed."""


def did_you_mean(word: str, known: Iterable[str], written: Callable[[str], str] = str) -> str:
    """The end of a sentence that proposes a known name like this one; "" if none is like it.

    written: how a person writes a name.
    """
    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), names, 1)
    return f": did you mean {written(names[near[0]])}?" if near else ""
