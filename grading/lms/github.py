"""GitHub Classroom: prepare students' repositories for the grader, and run visible checks there.

collect lays one lab of the repositories' clones out as FOLDER/<student>/NN_noun.ipynb. The table
that GitHub Classroom gives (Download > Download grades, or `gh classroom assignment-grades`) says
whose they are and when they were pushed. `gh classroom clone student-repos` makes the clones.
workflow writes a file for .github/workflows, which runs the visible checks at each push.
"""

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from common.files import replace
from grading.course import tables
from grading.errors import InputError
from grading.lms import folders
from grading.source import labs
from grading.submissions import count_of, escaped, is_notebook, lab_of

COLUMNS = ("github_username", "student_repository_name", "submission_timestamp")
WORKFLOW = Path(".github") / "workflows" / "classroom.yml"
# The release for students is the starter code. One job, so that GitHub shows one tick or cross.
TEXT = """\
name: Visible checks
on: [push, workflow_dispatch]
permissions:
  contents: read
jobs:
  checks:
    runs-on: ubuntu-24.04
    timeout-minutes: 20
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
          cache: pip
          cache-dependency-path: requirements.lock
      - run: pip install -r requirements.lock --extra-index-url https://download.pytorch.org/whl/cpu
      - run: python -m grading {lab} --strict
"""


@dataclass(frozen=True)
class Repository:
    """A line of GitHub Classroom's table."""

    name: str  # without its organization
    student: str
    pushed_s: float | None  # seconds since 1970; None if nothing was pushed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `github` accepts."""
    verbs = parser.add_subparsers(required=True, metavar="{collect,workflow}")
    collecting = verbs.add_parser("collect", help="lay clones out for the grader")
    add = collecting.add_argument
    add("lab", help="the lab of the assignment, for example 01; clones hold all labs")
    add("clones", type=Path, metavar="CLONES", help="the folder that holds the clones")
    add("table", type=Path, metavar="GRADES.csv", help="the table of GitHub Classroom")
    add("folder", type=Path, metavar="FOLDER", help="the folder to write to")
    collecting.set_defaults(act=_collect)
    writing = verbs.add_parser("workflow", help="write the workflow that runs visible checks")
    writing.add_argument("lab", help="the lab of the assignment, for example 01")
    writing.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=Path(),
        help="the repository's folder (default: this one)",
    )
    writing.set_defaults(act=_workflow)


def run(options: argparse.Namespace) -> int:
    """The command `github`."""
    options.act(options)
    return 0


def _collect(options: argparse.Namespace) -> None:
    lab = labs.resolve(options.lab)
    repositories = read(options.table)
    if not options.clones.is_dir():
        raise InputError(
            f"{options.clones} is no folder: make the clones with gh classroom clone student-repos"
        )
    students = set()
    for one in collect(lab, options.clones, repositories, options.folder):
        for line in one.left_out:
            print(f"left out: {escaped(line)}")
        if not one.there:
            continue
        students.add(one.repository.student)
        if one.repository.pushed_s is None:
            name = escaped(one.repository.name)
            print(f"{name}: the table has no time of a push, so it counts as handed in now")
    for name in sorted(_strangers(options.clones, repositories)):
        print(f"left out: {escaped(name)} (it is not in {options.table})")
    if not students:
        raise InputError(f"no clone in {options.clones} has a notebook of lab {lab}")
    print(f"{count_of(students)}: {options.folder}")


def read(path: Path) -> list[Repository]:
    """The repositories in GitHub Classroom's table. A student is named by the roster's identifier,
    or else by their account."""
    if not path.is_file():
        raise InputError(
            f"{path} does not exist: download it from GitHub Classroom (Download > Download "
            "grades), or make it with gh classroom assignment-grades"
        )
    found: list[Repository] = []
    for line, row in tables.read(path, COLUMNS):
        student = row.get("roster_identifier") or row["github_username"]
        name = row["student_repository_name"].rpartition("/")[2]
        for word in (student, name or student):  # without a repository, nothing was accepted
            if not word or word.startswith(".") or {"/", "\0"} & {*word}:
                raise InputError(f"{path}, line {line}: {word!r} can't be a folder's name")
        if any(other.student == student for other in found):
            raise InputError(f"{path}, line {line}: {student} is there twice")
        found.append(Repository(name, student, _seconds(row["submission_timestamp"], path, line)))
    return found


def _seconds(text: str, path: Path, line: int) -> float | None:
    """GitHub's own time of the last push, in UTC: 2026-11-20T17:58:03Z."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text.replace(" UTC", "+00:00").replace("Z", "+00:00"))
    except ValueError:
        raise InputError(f"{path}, line {line}: {text!r} is no time") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


@dataclass
class Collected:
    """What was taken of a repository."""

    repository: Repository
    there: list[Path] = field(default_factory=list)  # its notebooks' files, new or from before
    left_out: list[str] = field(default_factory=list)  # a line for each file, or for the clone


def collect(
    lab: str, clones: Path, repositories: Sequence[Repository], folder: Path
) -> Iterator[Collected]:
    """Copy each repository's notebooks of a lab to folder/<student>; what is there already stays.

    Their files get the time of the push, which the grader takes for lateness: the times in a clone
    are those of cloning, and a commit's time is the student's to choose.
    """
    for repository in repositories:
        one = Collected(repository)
        for path in _notebooks(clones / repository.name) if repository.name else ():
            inside, of = path.relative_to(clones), lab_of(path.name)
            if of is None:
                one.left_out.append(f"{inside} (no lab has this name: if it is one, rename it)")
            if of != lab:
                continue
            copy = folder / repository.student / path.name
            before_s = copy.stat().st_mtime if copy.is_file() else math.inf
            one.there.append(copy)
            try:
                folders.lay(copy, [path.read_bytes()])
            except InputError as problem:
                one.left_out.append(f"{inside} ({problem})")
                continue
            if repository.pushed_s is not None:
                # A later push of something else does not make it late.
                time_s = min(repository.pushed_s, before_s)
                os.utime(copy, (time_s, time_s))
        if not one.there and not one.left_out:
            which = repository.name or repository.student
            one.left_out.append(f"{which} (no clone of it, or no notebook of lab {lab})")
        yield one


def _notebooks(clone: Path) -> list[Path]:
    """The notebooks in labs/, or at the top of a repository that has no such folder."""
    if clone.is_symlink() or (clone / "labs").is_symlink():
        return []  # it may lead to another student's clone
    folder = clone / "labs" if (clone / "labs").is_dir() else clone
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return [
        path for path in there if is_notebook(path) and path.is_file() and not path.is_symlink()
    ]


def _strangers(clones: Path, repositories: Sequence[Repository]) -> set[str]:
    there = {path.name for path in clones.iterdir() if path.is_dir() and path.name[0] != "."}
    return there - {repository.name for repository in repositories}


def _workflow(options: argparse.Namespace) -> None:
    path = options.out / WORKFLOW
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, TEXT.format(lab=labs.resolve(options.lab)[:2]))
    print(f"{path}: put it into the assignment's template repository, next to the release's files")
