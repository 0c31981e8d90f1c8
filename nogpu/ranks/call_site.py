"""Where in the user's own code something was called."""

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

OURS = str(Path(__file__).parent)


class CallSite(NamedTuple):
    """A line of the user's code: its number and its text."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.text else f"line {self.line}"

    @classmethod
    def current(cls) -> Self:
        """The line that called into this package; within a hook of PyTorch's, the hook's line."""
        frame = user_frame(sys._getframe(1))
        return cls(0, "") if frame is None else cls.of(frame)

    @classmethod
    def of(cls, frame: FrameType) -> Self:
        """The line that a frame executes."""
        name, line = frame.f_code.co_filename, frame.f_lineno
        return cls(line, linecache.getline(name, line, frame.f_globals).strip())


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from this one outwards, that belongs neither to us nor to PyTorch."""
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_users(filename: str) -> bool:
    return not (
        filename.startswith(OURS)
        or "/torch/" in filename
        or filename.endswith(("/contextlib.py", "/threading.py"))
        or filename.startswith("<frozen")
    )
