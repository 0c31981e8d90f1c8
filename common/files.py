"""Files that are written whole or not at all, and names that are free."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path next to this one to write to. It replaces this one at the end of the block.

    A full disk or a crash leaves the old file. If several processes write at once, the last wins.
    """
    with _beside(path) as new:
        yield new
        os.replace(new, path)


def replace(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole(path) as new, open(new, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


def create(path: Path, text: str) -> None:
    """Write a file for its owner only. If several processes write at once, the first wins."""
    with _beside(path) as new:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.replace(new, path)


def set_aside(path: Path, stem: str, suffix: str = "", folder: Path | None = None) -> Path:
    """Rename a file to the first name of `stem-1suffix`, `stem-2suffix`, ... that is free.

    folder: where to; it is made if it does not exist. By default, the file's own.
    """
    folder = folder or path.parent
    folder.mkdir(exist_ok=True)
    numbered = (folder / f"{stem}-{number}{suffix}" for number in itertools.count(1))
    return path.rename(next(name for name in numbered if not name.exists()))


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        yield new
    finally:
        new.unlink(missing_ok=True)
