"""The folders before and after the grader: files are laid out in one, results are in the other."""

import contextlib
import filecmp
from collections.abc import Iterable
from pathlib import Path

from common.files import whole
from grading.errors import InputError
from grading.source import notebook


class _ThereAlready(Exception):
    """A file with the same content is there."""


def lay(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file for the grader, whole or not at all.

    One that is there with the same content keeps its time. One with other content stays, and an
    InputError says so; but the stand-in for a notebook that could not be unpacked is replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(_ThereAlready), whole(path) as new:
        with open(new, "wb") as file:
            file.writelines(pieces)
        if path.exists():
            if filecmp.cmp(new, path, shallow=False):
                raise _ThereAlready
            if not _is_stand_in(path):
                raise InputError(
                    f"{path} is there already with other content, and stays; if the new one shall "
                    "count, delete that file and run this again"
                )


def stand_in(path: Path, why: str) -> None:
    """Write a file that the grader reads as a notebook that could not be unpacked.

    why: one of notebook.NOT_UNPACKED.
    """
    lay(path, [f"{notebook.STAND_IN}{why}".encode()])


def _is_stand_in(path: Path) -> bool:
    mark = notebook.STAND_IN.encode()
    with open(path, "rb") as file:
        return file.read(len(mark)) == mark


def expect_results(folder: Path) -> None:
    """InputError unless the grader wrote its results to this folder."""
    if not (folder / "results.json").is_file():
        what = "holds no results" if folder.is_dir() else "does not exist"
        raise InputError(
            f"{folder} {what}: grade first, with python -m grading SUBMISSIONS --out {folder}"
        )
