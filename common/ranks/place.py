"""Where in the student's own code something was called."""

import linecache
import sys
from pathlib import Path

OURS = str(Path(__file__).parent)


def here():
    """(line, text) of the innermost frame that is neither ours nor PyTorch's: of a hook, the hook's own line."""
    frame = outer(sys._getframe(1))
    return place(frame) if frame is not None else (0, "")


def outer(frame):
    """The innermost frame from this one outwards that is neither ours nor PyTorch's; None if there is none."""
    while frame is not None and not _theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def place(frame):
    """(line, text) of a frame."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    return line, linecache.getline(name, line, frame.f_globals).strip()


def in_words(line, text) -> str:
    """A place in words."""
    return f"line {line}: {text}" if text else f"line {line}"


def _theirs(name) -> bool:
    return not (
        name.startswith(OURS)
        or "/torch/" in name
        or name.endswith(("/contextlib.py", "/threading.py"))
        or name.startswith("<frozen")
    )
