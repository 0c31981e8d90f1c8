"""GitHub Classroom: prepare students' repositories for the grader, and run visible checks there.

collect lays clones of the repositories out as FOLDER/<student>/NN_noun.ipynb. The table that
GitHub Classroom gives (Download > Download grades, or `gh classroom assignment-grades`) says whose
they are and when they were pushed. `gh classroom clone student-repos` makes the clones.
workflow writes a file for .github/workflows, which runs the visible checks at each push.
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.files import replace
from grading.course import tables
from grading.errors import InputError
from grading.source import labs
from grading.submissions import count_of

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
    repositories = read(options.table)
    if not options.clones.is_dir():
        raise InputError(
            f"{options.clones} is no folder: make the clones with gh classroom clone student-repos"
        )
    students = set()
    for repository, notebooks in collect(options.clones, repositories, options.folder):
        if not notebooks:
            print(f"left out: {repository.name} (no clone of it, or no notebook in its labs)")
            continue
        students.add(repository.student)
        if repository.pushed_s is None:
            print(
                f"{repository.name}: the table has no time of a push, so it counts as handed in now"
            )
    for name in sorted(_strangers(options.clones, repositories)):
        print(f"left out: {name} (it is not in {options.table})")
    print(f"{count_of(students)}: {options.folder}")


def read(path: Path) -> list[Repository]:
    """The repositories in GitHub Classroom's table. A student is named by the roster's identifier,
    or else by their account."""
    found: list[Repository] = []
    for line, row in tables.read(path, COLUMNS):
        student = row.get("roster_identifier") or row["github_username"]
        if not student or "/" in student or student.startswith("."):
            raise InputError(f"{path}, line {line}: {student!r} can't be a folder's name")
        name = row["student_repository_name"].rpartition("/")[2]
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


def collect(
    clones: Path, repositories: Sequence[Repository], folder: Path
) -> Iterator[tuple[Repository, list[Path]]]:
    """Copy each repository's notebooks to folder/<student>; yields what was copied.

    Their files get the time of the push, which the grader takes for lateness: the times in a clone
    are those of cloning, and a commit's time is the student's to choose.
    """
    for repository in repositories:
        copied = []
        for path in _notebooks(clones / repository.name):
            copy = folder / repository.student / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy, follow_symlinks=False)
            if repository.pushed_s is not None:
                os.utime(copy, (repository.pushed_s, repository.pushed_s))
            copied.append(copy)
        yield repository, copied


def _notebooks(clone: Path) -> list[Path]:
    """The notebooks in labs/, or at the top of a repository that has no such folder."""
    if clone.is_symlink() or (clone / "labs").is_symlink():
        return []  # it may lead to another student's clone
    folder = clone / "labs" if (clone / "labs").is_dir() else clone
    return sorted(
        path for path in folder.glob("*.ipynb") if path.is_file() and not path.is_symlink()
    )


def _strangers(clones: Path, repositories: Sequence[Repository]) -> set[str]:
    there = {path.name for path in clones.iterdir() if path.is_dir() and path.name[0] != "."}
    return there - {repository.name for repository in repositories}


def _workflow(options: argparse.Namespace) -> None:
    path = options.out / WORKFLOW
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, TEXT.format(lab=labs.resolve(options.lab)[:2]))
    print(f"{path}: put it into the assignment's template repository, next to the release's files")
