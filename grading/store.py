"""Kept results: one file per graded notebook, named by a hash of all that decides its points."""

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.files import replace
from common.paths import CODE, ROOT
from grading.errors import CommandError
from grading.report import CheckResult, Result
from grading.source.holes import Answer
from grading.source.labs import SOURCES


class BusyError(CommandError):
    """Another grader works in this folder."""


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """What a grading process needs. It holds no path: the process may be on another machine."""

    lab: str
    answers: dict[str, Answer]
    seed: int = 0
    jail: str = "none"
    modules: tuple[str, ...] = ()  # what the fork server imports for all the jobs of this run
    for_students: bool = False  # whether to find out what the students may read of the results


class Store:
    """The folder of results, for one grader at a time. fresh: whether to use none of them again.

    Its files are whole or absent, whenever the grader is ended.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.folder, self.fresh = folder, fresh
        (folder / "graded").mkdir(parents=True, exist_ok=True)
        # The file stays open, and so locked, as long as this object lives.
        self._lock = open(folder / "graded" / ".lock", "w")  # noqa: SIM115
        with contextlib.suppress(ImportError):  # Windows has no fcntl
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"another grader works in {folder}: wait until it ends, or give another folder"
                ) from None

    def is_empty(self) -> bool:
        """Whether no results are kept."""
        return not any((self.folder / "graded").glob("*.json"))

    def get(self, key: str) -> list[Result] | None:
        """The results under a key; None if there are none."""
        try:
            kept = json.loads(self._path(key).read_text("utf-8"))
            return [_result(**result) for result in kept]
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, results: Iterable[Result]) -> None:
        """Keep results under a key."""
        text = json.dumps([dataclasses.asdict(result) for result in results], ensure_ascii=False)
        replace(self._path(key), text)

    def _path(self, key: str) -> Path:
        return self.folder / "graded" / f"{key}.json"

    @staticmethod
    def key(job: Job) -> str:
        """A hash of all that decides a job's points: answers, lab, code, seed, jail."""
        answers = {name: dataclasses.astuple(answer) for name, answer in job.answers.items()}
        return _hash(job.lab, _source(job.lab), answers, job.seed, job.jail, code())

    @staticmethod
    def key_unread(lab: str, results: Sequence[Result]) -> str:
        """As `key`, for a notebook that can't be read: each of its results says why."""
        return _hash(lab, _source(lab), results[0].message, code())


def _hash(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _source(lab: str) -> str:
    """A hash of the lab's text."""
    return hashlib.sha256((SOURCES / f"{lab}.py").read_bytes()).hexdigest()


def _result(checks: Iterable[Mapping[str, Any]] = (), **rest: Any) -> Result:
    return Result(checks=tuple(CheckResult(**check) for check in checks), **rest)


@functools.cache
def code() -> str:
    """A hash of the grader's and the labs' code."""
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    text = "\0".join(
        f"{path.relative_to(ROOT)}\0{path.read_text('utf-8')}" for path in sorted(files)
    )
    return hashlib.sha256(text.encode()).hexdigest()
