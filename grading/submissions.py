"""What a class handed in: the notebooks of a folder, whose they are, which attempt, how late."""

import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from grading.source import labs

TIME = re.compile(r"(20\d\d)-?(\d\d)-?(\d\d)[T_ -]?(\d\d)[:.h-]?(\d\d)(?:[:.m-]?(\d\d))?(Z?)")
NUMBER = re.compile(r"[-_ ]\(?(\d{1,3})\)?$")


@dataclass(frozen=True)
class Submission:
    """One notebook of one student. attempt: 1 for the earliest of this lab. time_s: since 1970; late_s: after the deadline,
    None where there is none. counts: whether it is the attempt that counts."""

    student: str
    lab: str
    path: Path
    time_s: float = 0.0
    attempt: int = 1
    late_s: int | None = None
    counts: bool = True


def find(folder, deadlines=None, count="last"):
    """([Submission], notebooks of no lab) of a folder, the attempts at a lab from the earliest to the one that counts.

    folder: <student>/NN_noun.ipynb, or one folder deeper. Attempts are told apart by a number (NN_noun-2.ipynb), or a time in
    the name or in the folder's name; Jupyter's own -Copy1 comes before them. deadlines: {lab: seconds since 1970}.
    count: which attempt counts, "first", "last" or (each of them, for the points to decide) "best".
    """
    found, strays = {}, []
    for student in sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    ):
        for path in sorted(_notebooks(student)):
            name = None if path.is_symlink() else _lab_of(path)
            if name is None:
                strays.append(path)
            else:
                found.setdefault((student, name), []).append(path)
    ordered = []
    for (student, name), paths in found.items():
        paths.sort(key=lambda path: _place(path, name, student))
        counting = {"first": paths[:1], "last": paths[-1:], "best": paths}[count]
        for attempt, path in enumerate(paths, 1):
            time_s = handed_in_s(path, student)
            late_s = max(0, round(time_s - deadlines[name])) if name in (deadlines or {}) else None
            ordered.append(
                Submission(student.name, name, path, time_s, attempt, late_s, path in counting)
            )
    return ordered, strays


def _notebooks(student):
    """The notebooks in a student's folder and one folder deeper; what can't be read, or is gone by now, is left out."""
    folders = [student]
    with contextlib.suppress(FileNotFoundError):
        inside = (path for path in student.iterdir() if path.is_dir())
        folders += [
            path for path in inside if not path.name.startswith(".") and not path.is_symlink()
        ]
    for folder in folders:
        with contextlib.suppress(PermissionError, FileNotFoundError):
            yield from (
                path
                for path in folder.iterdir()
                if path.suffix == ".ipynb" and not path.name.startswith(".")
            )


def _lab_of(path):
    try:
        return labs.resolve(path)
    except ValueError:
        return None


def _place(path, name, student):
    """What attempts are ordered by: copies that Jupyter made first, then numbers, then the time."""
    rest = path.stem.removeprefix(name)
    number = NUMBER.search(rest)
    return (
        "-Copy" not in rest,
        int(number[1]) if number and not TIME.search(rest) else 0,
        handed_in_s(path, student),
        path.name,
    )


def handed_in_s(path, student):
    """When a notebook was handed in, in seconds since 1970: by a time in its name or its folder's, by nbgrader's
    timestamp.txt beside it, else by the file's own time. A time with no zone is this machine's. student: their folder."""
    beside = path.parent / "timestamp.txt"
    with contextlib.suppress(OSError, ValueError):
        return datetime.fromisoformat(
            beside.read_text(encoding="utf-8")[:40].strip().replace(" UTC", "+00:00")
        ).timestamp()
    if told := TIME.search(str(path.relative_to(student))):
        *numbers, zone = told.groups(default="0")
        with contextlib.suppress(ValueError):  # no time after all
            return datetime(*map(int, numbers), tzinfo=UTC if zone == "Z" else None).timestamp()
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
