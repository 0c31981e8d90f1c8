"""The roster: who is in the class, with names and sections."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grading.course import tables
from grading.errors import InputError

# What other systems call the columns: Canvas's gradebook, GitHub Classroom's roster.
STUDENT = ("student", "sis login id", "identifier", "roster_identifier")
NAME = ("name", "student name")
SECTION = ("section",)


@dataclass(frozen=True)
class Person:
    """A student: the name of their folder, their own name, their section."""

    student: str
    name: str = ""
    section: str = ""
    others: tuple[str, ...] = ()  # other names that their folder may have


@dataclass(frozen=True)
class Roster:
    """The students of a class, by the names of their folders."""

    people: Mapping[str, Person] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Roster":
        """The roster in a CSV file: ours (student, name, section), or Canvas's exported gradebook.

        InputError if two lines have the same student.
        """
        lines = tables.read(path, ())
        columns = set(lines[0][1]) if lines else set()
        is_canvas = {"student", "id", "sis login id"} <= columns
        key = next((name for name in STUDENT if name in columns), None)
        if key is None:
            raise InputError(
                f"{path} has no column student: its first line names the columns, student, name "
                "and section; or give the gradebook that Canvas exports"
            )
        people: dict[str, Person] = {}
        for number, row in lines:
            person = _canvas_person(row) if is_canvas else _person(row, key)
            if person is None:
                continue
            if person.student in people:
                raise InputError(f"{path}, line {number}: {person.student} is there twice")
            people[person.student] = person
        return cls(people)

    def name(self, student: str) -> str:
        """The student's own name, or else the name of their folder."""
        person = self.people.get(student)
        return person.name if person and person.name else student

    def section(self, student: str) -> str:
        person = self.people.get(student)
        return person.section if person else ""


def _person(row: Mapping[str, str], key: str) -> Person | None:
    name = next((row[column] for column in NAME if row.get(column)), "")
    section = next((row[column] for column in SECTION if row.get(column)), "")
    return Person(row[key], name, section) if row[key] else None


def _canvas_person(row: Mapping[str, str]) -> Person | None:
    """`canvas unpack` names the folders by Canvas's id. The first lines are no students."""
    if not row["id"].isdecimal() or row["student"] == "Student, Test":
        return None
    others = tuple(row[k] for k in ("sis login id", "sis user id") if row.get(k))
    return Person(row["id"], row["student"], row.get("section", ""), others)
