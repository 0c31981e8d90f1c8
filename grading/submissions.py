"""What a class handed in: the notebooks of a folder, with student, attempt and lateness."""

import contextlib
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Literal

from grading.errors import InputError
from grading.source import labs

TOLERANCE_S = 600  # between a file's time and what its name says
END_OF_DAY = time(23, 59, 59)
MAX_ATTEMPTS = 20  # of a student at a lab: with "best", each is graded
EARLY_S = (
    365 * 86_400
)  # a file that is older than this at its deadline has a time that it was given
MAX_NAME = 60  # characters of a student's name: a file's name has 255 bytes at most
LAST_S = 32_503_680_000  # the year 3000: a later time can't be shown
TIME = re.compile(r"(20\d\d)-?(\d\d)-?(\d\d)[T_ -]?(\d\d)[:.h-]?(\d\d)(?:[:.m-]?(\d\d))?(Z?)")
NUMBER = re.compile(r"[-_ ]\(?(\d{1,3})\)?$")
# Canvas counts resubmissions, -1 to -7; each later one gets a random word.
RANDOM, AFTER_ALL = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"), 1000


@dataclass(frozen=True)
class Submission:
    """One notebook of one student."""

    student: str
    lab: str
    path: Path
    time_s: float = 0.0  # when it was handed in, in seconds since 1970
    attempt: int = 1  # 1 for the student's earliest at this lab
    late_s: int | None = None  # seconds after the deadline; None without a deadline
    counts: bool = True  # whether it is (or may be) the attempt that counts
    claims: str = ""  # an earlier time that its name, folder or file claims, in words
    rivals: str = ""  # other notebooks of the student that may be the ones that count


WITHOUT_TIMES = "no_times.txt"  # in a folder that a platform's archive was unpacked to


def count_of(students: Sized) -> str:
    """ "1 student", "12 students"."""
    return f"{len(students)} {'student' if len(students) == 1 else 'students'}"


def find(
    folder: Path,
    deadlines: Mapping[str, float] | None = None,
    count: Literal["first", "last", "best"] = "last",
    times: Literal["files", "names", "none"] = "files",
) -> tuple[list[Submission], list[Path]]:
    """(the submissions in a folder, the notebooks that belong to no lab).

    The attempts of a student at a lab are in order. A number in the name (NN_noun-2.ipynb), or a
    time in the name or in the folder's name, says which attempt it is. Jupyter's own copies
    (-Copy1) come first.

    folder: has <student>/NN_noun.ipynb, or one folder deeper.
    deadlines: {lab: seconds since 1970}.
    count: which attempt counts. With "best", all of them may: their points decide.
    times: when a notebook was handed in: the time of the file, or what its name says. A student can
    choose a name, so "names" is for folders that a platform made.
    """
    attempts, strays = _attempts(folder)
    submissions = []
    for (student, name), paths in attempts.items():
        paths = sorted(paths, key=lambda path: _place(path, name, student))[-MAX_ATTEMPTS:]
        counting = {"first": paths[:1], "last": paths[-1:], "best": paths}[count]
        due_s = (deadlines or {}).get(name)
        for attempt, path in enumerate(paths, 1):
            time_s, claims = _time(path, student, times)
            who, is_counted = shown(student.name), path in counting
            rivals = _rivals(path, paths, name, student, times) if counting == [path] else ""
            one = Submission(who, name, path, time_s, attempt, None, is_counted, claims, rivals)
            submissions.append(with_deadline(one, due_s))
    return submissions, strays


def with_deadline(one: Submission, due_s: float | None) -> Submission:
    """The submission with how late it is. Too old a time is one that its file was given."""
    if due_s is None:
        return replace(one, late_s=None)
    is_odd = one.time_s < due_s - EARLY_S
    claims = one.claims or (_in_words(one.time_s) if is_odd else "")
    return replace(one, late_s=max(0, round(one.time_s - due_s)), claims=claims)


def _attempts(folder: Path) -> tuple[dict[tuple[Path, str], list[Path]], list[Path]]:
    """({(student's folder, lab): notebooks}, the notebooks that belong to no lab)."""
    attempts: dict[tuple[Path, str], list[Path]] = {}
    folders: dict[str, Path] = {}
    strays = []
    for student in sorted(path for path in folder.iterdir() if _is_folder(path)):
        who = shown(student.name)
        if (other := folders.setdefault(unified(who), student)) != student:
            raise InputError(
                f"{shown(other.name)} and {who} would have one page: rename one of the folders"
            )
        for path in sorted(_notebooks(student)):
            name = None if path.is_symlink() else lab_of(path.name)
            if name is None:
                strays.append(path)
            else:
                attempts.setdefault((student, name), []).append(path)
    return attempts, strays


def earlier(folder: Path) -> list[Submission]:
    """The submissions of an earlier class, and notebooks that lie in the folder itself.

    Their students are named FOLDER/STUDENT, as no student of a class can be named.
    """
    name = shown(str(folder))
    found = [replace(one, student=f"{name}/{one.student}") for one in find(folder)[0] if one.counts]
    for path in sorted(folder.iterdir()):
        if is_notebook(path) and not path.is_symlink() and (lab := lab_of(path.name)):
            found.append(Submission(f"{name}/{shown(path.name)}", lab, path))
    return found


def _time(path: Path, student: Path, times: Literal["files", "names", "none"]) -> tuple[float, str]:
    """(when it was handed in, the earlier time that its name claims or "")."""
    of_file_s, of_name_s = _shown_s(_modified_s(path)), _shown_s(handed_in_s(path, student))
    if times != "files":
        return of_name_s if times == "names" else of_file_s, ""
    return of_file_s, _in_words(of_name_s) if of_name_s < of_file_s - TOLERANCE_S else ""


def _shown_s(time_s: float) -> float:
    """The time, within what can be shown: a file's time may be anything."""
    return min(max(time_s, 0.0), LAST_S)


def _in_words(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M}"


def shown(name: str) -> str:
    """A file's or folder's name as text for files, tables and the terminal.

    Control characters are escaped, bytes that are not UTF-8 are replaced, and a long name is cut
    and ends in a number of its own, so that two names stay two.
    """
    text = escaped(os.fsencode(name).decode(errors="replace"))
    if len(text) <= MAX_NAME and text == name:
        return text
    own = f"~{hashlib.sha256(os.fsencode(name)).hexdigest()[:10]}"
    return text[: MAX_NAME - len(own)] + own


def unified(name: str) -> str:
    """A name as no two people may have it: without case, and in one way of writing.

    macOS writes é as two characters, and a keyboard as one.
    """
    return unicodedata.normalize("NFKC", name).strip().casefold()


def escaped(text: str, keep: str = "") -> str:
    """The text with its control characters shown: a terminal would obey them."""
    return "".join(c if c in keep or c.isprintable() else ascii(c)[1:-1] for c in text)


def deadlines(words: Iterable[str]) -> dict[str, float]:
    """{lab: seconds since 1970} from ["TIME", "LAB=TIME", ...], as --deadline takes them.

    A time without a zone is in this machine's zone. The deadline of one lab overrides that of all.
    """
    due: dict[str, float] = {}
    for word in sorted(words, key=lambda word: "=" in word):
        lab, _, time = word.rpartition("=")
        expected = f"--deadline {word}: give a time, 2026-11-20T18:00, or LAB=TIME"
        try:
            names = [labs.resolve(lab)] if lab else labs.names()
        except InputError as problem:
            raise InputError(f"{expected}: {problem}") from None
        try:
            due |= dict.fromkeys(names, _due_s(time))
        except (ValueError, OverflowError):
            raise InputError(expected) from None
    return due


def _due_s(text: str) -> float:
    """The time in seconds since 1970. A day without a time is due at its end."""
    with contextlib.suppress(ValueError):
        return datetime.combine(date.fromisoformat(text), END_OF_DAY).timestamp()
    return datetime.fromisoformat(text).timestamp()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".")


def left_out(folder: Path) -> Iterator[tuple[Path, str]]:
    """(folders with notebooks that no student's work is taken from, why)."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path.is_symlink() or path.name.startswith(".")):
            why = "links are not followed" if path.is_symlink() else "its name begins with a dot"
            with contextlib.suppress(OSError):
                if any(path.glob("*.ipynb")) or any(path.glob("*/*.ipynb")):
                    yield path, why


def _notebooks(student: Path) -> Iterator[Path]:
    """The notebooks in a student's folder and one folder deeper, except what can't be read."""
    folders = [student]
    with contextlib.suppress(FileNotFoundError):
        folders += [path for path in student.iterdir() if _is_folder(path)]
    for folder in folders:
        with contextlib.suppress(PermissionError, FileNotFoundError):
            yield from (
                path
                for path in folder.iterdir()
                if is_notebook(path) and not path.name.startswith(".")
            )


def is_notebook(path: Path) -> bool:
    """Whether a file has a notebook's name. Windows and macOS don't tell .IPYNB from .ipynb."""
    return path.suffix.lower() == ".ipynb"


def lab_of(name: str) -> str | None:
    """The lab that a notebook's name means, in capitals or not; None if it is no lab's name."""
    try:
        return labs.resolve(name.lower())
    except InputError:
        return None


def _place(path: Path, name: str, student: Path) -> tuple[bool, int, float, str]:
    """What attempts are sorted by: first Jupyter's own copies, then by number, then by time."""
    rest = re.sub(f"^{name}", "", path.stem, flags=re.IGNORECASE)
    match = None if TIME.search(rest) else NUMBER.search(rest)
    number = AFTER_ALL if RANDOM.search(rest) else int(match[1]) if match else 0
    is_original = "-Copy" not in rest
    return is_original, number, handed_in_s(path, student), path.name


def _rivals(
    path: Path,
    paths: Sequence[Path],
    name: str,
    student: Path,
    times: Literal["files", "names", "none"],
) -> str:
    """The other attempts of which neither the names nor the files' times say which is later, or of
    which they say the opposite. path: the one that counts, of `paths` in their order."""

    def is_clear(first: Path, second: Path) -> bool:
        one, other = _place(first, name, student), _place(second, name, student)
        later_s = _modified_s(second) - _modified_s(first)
        if one[:2] == other[:2] and other[2] - one[2] == later_s:  # names of no number or time
            return later_s > TOLERANCE_S
        return times != "files" or later_s > -TOLERANCE_S

    place = paths.index(path)
    unclear = [other for other in paths[:place] if not is_clear(other, path)]
    unclear += [other for other in paths[place + 1 :] if not is_clear(path, other)]
    return " and ".join(shown(other.name) for other in unclear[:3])


def handed_in_s(path: Path, student: Path) -> float:
    """When a notebook was handed in, in seconds since 1970.

    It is the time in nbgrader's timestamp.txt next to it, else a time in its name or its folder's
    name, else the time of the file. A time without a zone is in this machine's zone.

    student: the student's folder.
    """
    with contextlib.suppress(OSError, ValueError, OverflowError):
        text = _first_bytes(path.parent / "timestamp.txt").decode().strip()
        return datetime.fromisoformat(text.replace(" UTC", "+00:00")).timestamp()
    if match := TIME.search(str(path.relative_to(student))):
        *numbers, zone = match.groups(default="0")
        with contextlib.suppress(ValueError, OverflowError):  # digits, but not a time
            year, month, day, hour, minute, second = map(int, numbers)
            zone = UTC if zone == "Z" else None
            return datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()
    return _modified_s(path)


def _first_bytes(path: Path) -> bytes:
    """The beginning of a plain file. A link, a pipe or a device may never end."""
    if path.is_symlink() or not path.is_file():
        return b""
    with open(path, "rb") as file:
        return file.read(40)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
