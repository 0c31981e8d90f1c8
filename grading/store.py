"""What was graded, kept: a file a graded notebook, named by all that its points follow from."""

import contextlib
import dataclasses
import functools
import hashlib
import json

from common.files import replace
from common.paths import ROOT
from grading.report import Result
from grading.source.labs import SOURCES


class Busy(Exception):
    """Another grader works in this folder."""


class Store:
    """The folder of results, for one grader at a time. Its files are whole or not there, whenever the grader is ended."""

    def __init__(self, folder, fresh=False) -> None:
        self.folder, self.fresh = folder, fresh
        (folder / "graded").mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / "graded" / ".lock", "w")  # noqa: SIM115  (held as long as this process lives)
        with contextlib.suppress(ImportError):  # not on Windows
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy from None

    def get(self, key):
        """The results kept under a key, None if there are none or if all is to be fresh."""
        if self.fresh:
            return None
        try:
            return [
                Result(**result)
                for result in json.loads(
                    (self.folder / "graded" / f"{key}.json").read_text("utf-8")
                )
            ]
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key, results) -> None:
        """Keeps results."""
        text = json.dumps([dataclasses.asdict(result) for result in results], ensure_ascii=False)
        replace(self.folder / "graded" / f"{key}.json", text)

    @staticmethod
    def key(job):
        """A name for all that the points of a job follow from: the answers, the lab, the grader's code, the seed."""
        answers = {name: dataclasses.astuple(answer) for name, answer in job.answers.items()}
        source = hashlib.sha256((SOURCES / f"{job.lab}.py").read_bytes()).hexdigest()
        text = json.dumps([job.lab, source, answers, job.seed, job.jail, code()], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def code():
    """A hash of the grader's and the labs' code."""
    files = [path for folder in ("grading", "common") for path in (ROOT / folder).rglob("*.py")]
    text = "\0".join(
        f"{path.relative_to(ROOT)}\0{path.read_text('utf-8')}" for path in sorted(files)
    )
    return hashlib.sha256(text.encode()).hexdigest()
