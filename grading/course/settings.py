"""course.toml: deadlines, extensions, the late policy, and where roster and overrides are."""

import functools
import math
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, time, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from grading import classroom
from grading.course import overrides, slips
from grading.course.overrides import Override
from grading.course.roster import Roster
from grading.errors import InputError, did_you_mean
from grading.source import labs, notebook

DAY_S = 24 * 3600
EXAMPLE = """\
timezone = "Europe/Berlin"       # of all times below, and on students' pages
roster = "roster.csv"            # student, name, section
overrides = "overrides.csv"      # student, lab, exercise, points, reason

[deadlines]
01 = 2026-11-20T18:00:00
02 = 2026-11-27T18:00:00

[extensions.lovelaceada]         # the name of the student's folder
01 = 2026-11-25T18:00:00

[late]
grace_minutes = 15               # this much late costs nothing
percent_per_day = 10             # of the points earned, for each day that has begun
at_most_percent = 50

[written]
01 = 2                           # points of each written answer of lab 01
"""


@dataclass(frozen=True)
class LatePolicy:
    """What lateness costs. Without percents it is only reported."""

    grace_minutes: float = 0
    percent_per_day: float = 0
    at_most_percent: float = 100

    def percent(self, late_s: float) -> float:
        """The percents of a lab's points that are taken off, `late_s` after the deadline."""
        if late_s <= 60 * self.grace_minutes:
            return 0.0
        days = -(-late_s // DAY_S)
        return min(self.percent_per_day * days, self.at_most_percent)


@dataclass(frozen=True)
class Settings:
    """A course's settings. Without a course.toml: no deadlines, nobody on the roster."""

    deadlines: Mapping[str, float] = field(default_factory=dict)  # {lab: seconds since 1970}
    extensions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by student
    late: LatePolicy = LatePolicy()
    roster: Roster = Roster()
    roster_file: Path | None = None
    overrides: tuple[Override, ...] = ()
    written: Mapping[str, float] = field(default_factory=dict)  # {lab: points of each answer}
    zone: tzinfo | None = None  # of times that say no other; None: this machine's

    def due_s(self, student: str, lab: str) -> float | None:
        """When a student's lab is due, in seconds since 1970; None without a deadline.

        An extension takes no time away, whatever --deadline says, and where `all` is for all labs.
        """
        due_s = self.deadlines.get(lab)
        if due_s is None:
            return None
        return max(due_s, self.extensions.get(student, {}).get(lab, due_s))

    def folders_of(self, words: Iterable[str], folders: Collection[str]) -> set[str]:
        """The folders of students who are named as the roster names them, in any of its ways."""
        names = self.roster.by_folder(folders)
        return {names.get(known, known) for known in map(self.roster.folder, words)}

    def strangers(self, folders: Collection[str]) -> list[str]:
        """The folders of nobody on the roster; [] without a roster."""
        return sorted({*folders} - self.roster.people.keys()) if self.roster.people else []

    def person(self, student: str) -> str:
        """The student's name, and their folder too where two students have this name."""
        name = self.roster.name(student)
        return f"{name} ({student})" if self._names[name] > 1 else name

    @functools.cached_property
    def _names(self) -> Counter[str]:
        """How many students have each name."""
        return Counter(map(self.roster.name, self.roster.people))

    def for_folders(self, folders: Collection[str]) -> "Settings":
        """The settings with the students by these names of their folders, as the roster knows."""
        names = self.roster.by_folder(folders)
        return replace(
            self,
            extensions={names.get(word, word): times for word, times in self.extensions.items()},
            overrides=tuple(
                replace(one, student=names.get(one.student, one.student)) for one in self.overrides
            ),
            roster=self.roster.named_by(names),
        )


def read(path: Path) -> Settings:
    """The settings in a course.toml; InputError names the line of it that can't be used."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{path}, {slips.sentence(text, str(problem))}") from None
    except RecursionError:
        raise InputError(f"{path} has too many brackets in one another") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8: save it as UTF-8") from None
    except ValueError:
        raise InputError(f"{path}: a number in it has too many digits") from None
    tables = ("deadlines", "extensions", "late", "written")
    for key in data.keys() - tables:
        if any(key == name or key == name[:2] for name in labs.names()):
            raise InputError(f"{path}: {key} = ... stands in no table: write [deadlines] above it")
    _known(path, "", data, (*tables, "roster", "overrides", "timezone"))
    for name in tables:
        if not isinstance(data.get(name, {}), dict):
            raise InputError(f"{path}: {name} is a table: write [{name}] above its lines")
    zone = _zone(path, data.get("timezone"))
    roster_file = _file(path, data, "roster") if "roster" in data else None
    roster = Roster.read(roster_file) if roster_file else Roster()
    due = _times(path, "deadlines", data.get("deadlines", {}), zone)
    return Settings(
        deadlines=due,
        extensions=_extensions(path, data.get("extensions", {}), roster, due, zone),
        late=_late(path, data.get("late", {})),
        roster=roster,
        roster_file=roster_file,
        overrides=_overrides(path, data, roster),
        written=_points(path, data.get("written", {})),
        zone=zone,
    )


def _overrides(path: Path, data: Mapping[str, Any], roster: Roster) -> tuple[Override, ...]:
    if "overrides" not in data:
        return ()
    return tuple(overrides.read(_file(path, data, "overrides"), roster.folder))


def _file(path: Path, data: Mapping[str, Any], key: str) -> Path:
    if not isinstance(data[key], str) or not data[key] or "\0" in data[key]:
        raise InputError(f'{path}: {key} = {data[key]!r}: give the name of a file, "{key}.csv"')
    return path.parent / data[key]


def _extensions(
    path: Path,
    data: Mapping[str, Any],
    roster: Roster,
    due: Mapping[str, float],
    zone: tzinfo | None,
) -> dict[str, dict[str, float]]:
    """{student: {lab: seconds since 1970}}. A student is named as any of their folder's names.

    InputError for one that the roster does not know, for two of one student, and for one that ends
    before the deadline: it would take time away.
    """
    for word, times in data.items():
        if isinstance(times, dict) and (
            inner := [k for k, v in times.items() if isinstance(v, dict)]
        ):
            name = f'"{word}.{inner[0]}"'
            raise InputError(f"{path}: a name with a dot needs quotes: [extensions.{name}]")
    if roster.people:
        names = {other for one in roster.people.values() for other in (one.student, *one.others)}
        _known(path, "extensions", data, names)
    found: dict[str, dict[str, float]] = {}
    for word, times in data.items():
        table = f"extensions.{slips.quoted(word)}"
        if (student := roster.folder(word)) in found:
            raise InputError(f"{path}: [{table}]: {student} has two tables of extensions")
        found[student] = _times(path, table, times, zone)
        for lab, time_s in found[student].items():
            if "all" not in times and time_s < due.get(lab, time_s):
                raise InputError(f"{path}: [{table}] {lab} ends before the deadline of all")
    return found


def _known(path: Path, table: str, data: Iterable[str], allowed: Iterable[str]) -> None:
    """InputError for a key that is not allowed: a typing error must not cost a deadline."""
    for key in data:
        if key not in (names := sorted(allowed)):
            where = f"[{table}] " if table else ""
            known = ", ".join(map(slips.quoted, names[:9]))
            hint = did_you_mean(key, names, slips.quoted) or f": known are {known}"
            raise InputError(f"{path}: {where}{key} is unknown{hint}")


def _zone(path: Path, name: Any) -> tzinfo | None:
    """None: this machine's zone."""
    if name is None or name == "UTC":
        return UTC if name else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InputError(
            f'{path}: timezone = {name!r} is unknown: give a name like "Europe/Berlin"'
        ) from None


def _times(path: Path, table: str, data: Any, zone: tzinfo | None) -> dict[str, float]:
    """{lab: seconds since 1970}. The key `all` is for every lab without a time of its own."""
    if not isinstance(data, dict):
        raise InputError(f"{path}: {table} is a table: write [{table}] above its lines")
    times = (
        dict.fromkeys(labs.names(), _seconds(path, table, data["all"], zone))
        if "all" in data
        else {}
    )
    named = [key for key in data if key != "all"]
    return times | {
        name: _seconds(path, f"{table}.{key}", data[key], zone)
        for name, key in _by_lab(path, table, named).items()
    }


def _by_lab(path: Path, table: str, keys: Iterable[str]) -> dict[str, str]:
    """{lab: the key that means it}; InputError if two keys mean one lab."""
    found: dict[str, str] = {}
    for key in keys:
        name = _lab(path, table, key)
        if (other := found.setdefault(name, key)) != key:
            raise InputError(f"{path}: [{table}] {other} and {key} are both lab {name}")
    return found


def _lab(path: Path, table: str, key: str) -> str:
    try:
        return labs.resolve(key)
    except InputError as problem:
        raise InputError(f"{path}: [{table}] {problem}") from None


def _seconds(path: Path, key: str, value: Any, zone: tzinfo | None) -> float:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time(23, 59, 59))
    if isinstance(value, time):
        raise InputError(f"{path}: {key} = {value} has no day: write it so: 2026-11-20T18:00:00")
    if not isinstance(value, datetime):
        raise InputError(
            f"{path}: {key} = {value!r} is no time: write it without quotes, 2026-11-20T18:00:00"
        )
    try:
        return (value if value.tzinfo else value.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"{path}: {key} = {value} is no time of this course") from None


def _late(path: Path, data: dict[str, Any]) -> LatePolicy:
    _known(path, "late", data, [part.name for part in fields(LatePolicy)])
    return LatePolicy(
        **{
            key: _number(path, f"late.{key}", data[key], 100 if "percent" in key else math.inf)
            for key in data
        }
    )


def _points(path: Path, data: dict[str, Any]) -> dict[str, float]:
    for name, key in _by_lab(path, "written", data).items():
        if not notebook.questions(classroom.lab(name)):
            raise InputError(f"{path}: [written] {key}: lab {name} asks for no written answer")
    return {
        name: _number(path, f"written.{key}", data[key])
        for name, key in _by_lab(path, "written", data).items()
    }


def _number(path: Path, key: str, value: Any, most: float = math.inf) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or value == math.inf:
        what = "of 0 or more" if most == math.inf else f"from 0 to {most:g}"
        how = ", without quotation marks" if isinstance(value, str) else ""
        raise InputError(f"{path}: {key} = {value!r}: a number {what} is allowed{how}")
    return value
