"""What changed between two runs: whose points, from what to what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading import report
from grading.course import tables
from grading.errors import InputError
from grading.report import Row

COLUMNS = ("student", "lab", "exercise", "before", "now", "status_before", "status_now", "message")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Change:
    """An exercise of a student with other points or another status than before."""

    key: Key
    before: Row | None
    now: Row | None


def between(before: Iterable[Row], now: Iterable[Row]) -> list[Change]:
    """The changes, in the order of students, labs and exercises. New students are no change."""
    old, new = ({_key(row): row for row in rows} for rows in (before, now))
    known = {key[:2] for key in old}
    keys = sorted(key for key in old.keys() | new.keys() if key[:2] in known)
    changes = (Change(key, old.get(key), new.get(key)) for key in keys)
    return [one for one in changes if _shown(one.before) != _shown(one.now)]


def _key(row: Row) -> Key:
    return row["student"], row["lab"], row["exercise"]


def _shown(row: Row | None) -> tuple[Any, ...]:
    return () if row is None else (row["points"], row["status"])


def read(folder: Path) -> list[Row]:
    """The rows of the run before; [] if there was none, or if its file is damaged."""
    try:
        return report.read(folder)
    except (OSError, InputError):
        return []


def write(changes: Sequence[Change], folder: Path) -> None:
    """changes.csv: a line per change of the last run that changed something."""
    lines = []
    for one in changes:
        before, now = one.before, one.now
        lines.append(
            dict(zip(COLUMNS[:3], one.key, strict=True))
            | {
                "before": before["points"] if before else "",
                "now": now["points"] if now else "",
                "status_before": before["status"] if before else "",
                "status_now": now["status"] if now else "gone",
                "message": now["message"] if now else "",
            }
        )
    tables.write(folder / "changes.csv", COLUMNS, lines)
