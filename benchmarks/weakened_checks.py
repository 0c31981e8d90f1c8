"""Whether `make test` notices a check that was made weaker: python benchmarks/weakened_checks.py

weakened_checks.toml holds 30 checks of all labs, each weakened in one place: a case is dropped, a
tolerance is loosened, only shapes are compared. Each edit is made in a copy of the repository at
HEAD, and there the script runs what `make test` would run of the edited lab in TESTS.
It does so in two steps. Right answers and the solution must still pass, or the edit has broken the
check, and not weakened it. Of all other tests, at least one should fail.
"""

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
TESTS = "tests/labs/test_labs.py"
RIGHT = "(solution_passes or solution_scores or right_answer)"  # tests of what must be accepted
UNNOTICED = 1  # of all weakened checks, how many may pass unnoticed
PLACES = "import common, grading; print(*common.__path__, *grading.__path__, sep='\\n')"
HEADER = ("number", "lab", "exercise", "kind", "what the check now does", "`make test`", "seconds")


@dataclass(frozen=True)
class Weakening:
    """One check, weakened by one edit."""

    number: int
    lab: str
    exercise: str
    kind: str
    what: str
    path: str
    old: str
    new: str

    def applied(self, root: Path) -> str:
        """The text of the file with the edit; ValueError unless it fits exactly one place."""
        text = (root / self.path).read_text(encoding="utf-8")
        if (places := text.count(self.old)) != 1:
            raise ValueError(
                f"Weakening {self.number} ({self.lab}, {self.exercise}) cannot be made: its old "
                f"text stands in {places} places of {self.path}, and it should stand in one."
            )
        return text.replace(self.old, self.new)

    def has(self, words: Sequence[str]) -> bool:
        """Whether one of these words is its number, its lab's, or is in lab, exercise or kind."""
        names = f"{self.lab} {self.exercise} {self.kind}"
        known = (str(self.number), self.lab[:2])
        return any(word in known if word.isdigit() else word in names for word in words)


class Copy:
    """A copy of the repository, in a folder, in which one check is weaker."""

    def __init__(self, weakening: Weakening, folder: Path, threads: int) -> None:
        self.lab, self.folder, self.root = weakening.lab, folder, folder / "copy"
        self.environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "COURSE_BASE": "HEAD",
            "COURSE_VERDICTS": str(folder / "verdicts"),
            "OMP_NUM_THREADS": str(threads),
        }
        _clone(self.root)
        edited = weakening.applied(self.root)
        (self.root / weakening.path).write_text(edited, encoding="utf-8")
        places = self.run("-c", PLACES).stdout.split("\n")
        if not all(Path(place).is_relative_to(self.root) for place in filter(None, places)):
            raise ValueError(f"Python imports the course from {places}, and not from its copy.")

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """Runs Python in the copy, with these arguments."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True
        )

    def failing(self, words: str) -> str:
        """The first failing test of the lab that fits these words, as for -k; "" if all pass."""
        report = self.folder / "report.xml"
        chosen = ["--sample", "-x", TESTS, "-k", f"{self.lab} and {words}"]
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = self.run("-m", "pytest", *options, *chosen)
        if done.returncode not in (0, 1, 5):  # all pass, one fails, none fits
            raise ValueError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 (it is our own)
            if case.find("failure") is not None or case.find("error") is not None:
                return f"{TESTS}::{case.get('name')}"
        return ""


def _clone(folder: Path) -> None:
    """Puts the repository at HEAD into a folder. Where git keeps none, all files are committed."""
    if (ROOT / ".git").exists():
        _git("clone", "-q", "--shared", str(ROOT), str(folder))
        return
    left_out = shutil.ignore_patterns(".venv", "build", "__pycache__", "node_modules")
    shutil.copytree(ROOT, folder, ignore=left_out)
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "A copy"]):
        _git("-C", str(folder), *command)


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")


def noticed(weakening: Weakening, threads: int) -> tuple[str, float]:
    """(the first test that fails; "" if none does, seconds). The exercise's own tests come first.

    ValueError if a right answer fails: then the edit has broken the check.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(weakening, Path(folder).resolve(), threads)
        if broken := copy.failing(f"{weakening.exercise} and {RIGHT}"):
            raise ValueError(
                f"Weakening {weakening.number} breaks its check, which refuses a right answer: "
                f"{broken}"
            )
        failing = copy.failing(f"{weakening.exercise} and not {RIGHT}")
        failing = failing or copy.failing(f"not {RIGHT}")
    return failing, time.perf_counter() - start


def read(words: Sequence[str] = ()) -> list[Weakening]:
    """All weakenings, or those that have one of these words. Each of them fits its file."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["weakening"]
    found = [Weakening(number, **entry) for number, entry in enumerate(entries, 1)]
    for weakening in found:
        weakening.applied(ROOT)
    return [weakening for weakening in found if not words or weakening.has(words)]


def outcome(tried: concurrent.futures.Future) -> tuple[str, float, bool]:
    """(what is said of a weakening, seconds, whether it is noticed)."""
    try:
        failing, seconds = tried.result()
    except ValueError as problem:
        return f"NOT TRIED: {problem}", 0.0, False
    return f"fails: {failing}" if failing else "NOT NOTICED", seconds, bool(failing)


def row(*cells: object) -> None:
    """Prints a row of a table in Markdown."""
    print(f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once")
    parser.add_argument(
        "--only", nargs="+", default=[], help="numbers (07: of a lab), labs, exercises or kinds"
    )
    options = parser.parse_args()
    try:
        chosen = read(options.only)
    except ValueError as problem:
        parser.error(str(problem))
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    row(*HEADER)
    row(*("---" for _ in HEADER))
    count = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tries = [pool.submit(noticed, weakening, threads) for weakening in chosen]
        for weakening, tried in zip(chosen, tries, strict=True):
            w, (said, seconds, is_noticed) = weakening, outcome(tried)
            row(w.number, w.lab, w.exercise, w.kind, w.what, said, f"{seconds:.0f}")
            count += is_noticed
    print(f"{count} of {len(chosen)} weakened checks make `make test` fail")
    return int(count < len(chosen) - UNNOTICED)


if __name__ == "__main__":
    sys.exit(main())
