"""The roster: who is in the class, with names and sections."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from grading.course import tables
from grading.errors import InputError
from grading.submissions import unified

# What other systems call the columns: Canvas's gradebook, GitHub Classroom's roster.
STUDENT = ("student", "sis login id", "identifier", "roster_identifier")
NAME = ("name", "student name")
SECTION = ("section",)
POSSIBLE = "Points Possible"
NOBODY = ("", POSSIBLE, "Student, Test")  # names in lines of Canvas's gradebook


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

        InputError if two lines have the same student, or if no line names one.
        """
        lines = tables.read(path, ())
        nobody = f"{path} names no student: write a line for each, below the names of the columns"
        if not lines:
            raise InputError(nobody)
        columns = set(lines[0][1])
        expect_whole_names(columns, path)
        is_canvas = {"student", "id", "sis login id"} <= columns
        key = next((name for name in STUDENT if name in columns), None)
        if key is None:
            raise InputError(
                f"{path} has no column student: its first line names the columns, student, name "
                "and section; or give the gradebook that Canvas exports"
            )
        people: dict[str, Person] = {}
        known: set[str] = set()
        for number, row in lines:
            where = f"{path}, line {number}"
            person = _canvas_person(row, where) if is_canvas else _person(row, key)
            if person is None:
                continue
            if unified(person.student) in known:
                raise InputError(f"{where}: {person.student} is there twice")
            known.add(unified(person.student))
            people[person.student] = person
        if not people:
            raise InputError(nobody)
        return cls(people)

    def folder(self, word: str) -> str:
        """The student who has this name, login or SIS id; the word if nobody or two people have."""
        if word in self.people:
            return word
        meant = self._by_name.get(unified(word), set())
        return next(iter(meant)) if len(meant) == 1 else word

    @functools.cached_property
    def _by_name(self) -> dict[str, set[str]]:
        """{a name that a folder may have: the students who have it}."""
        found: dict[str, set[str]] = {}
        for one in self.people.values():
            for name in (one.student, *one.others):
                found.setdefault(unified(name), set()).add(one.student)
        return found

    def by_folder(self, folders: Collection[str]) -> dict[str, str]:
        """{student: the name of their folder}, for folders that are named by login or SIS id.

        InputError if two folders mean one student, or if a folder means two.
        """
        found: dict[str, str] = {}
        others = {word for one in self.people.values() for word in one.others}
        are_ids = self.people.keys() >= set(folders)
        for word in sorted(folders):
            student = self.folder(word)
            if word in self.people and word in others - {*self.people[word].others} and not are_ids:
                raise InputError(
                    f"{word}: this is an id of {self.name(word)} and the login of somebody else: "
                    "name all folders by the student's Canvas id"
                )
            if student in self.people and (other := found.setdefault(student, word)) != word:
                raise InputError(
                    f"{other} and {word} are both {self.name(student)} in the roster: which is it?"
                )
        return found

    def named_by(self, folders: Mapping[str, str]) -> "Roster":
        """The roster with these names of students' folders in place of its own."""
        people = (replace(p, student=folders.get(s, s)) for s, p in self.people.items())
        return Roster({person.student: person for person in people})

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


def _canvas_person(row: Mapping[str, str], where: str) -> Person | None:
    """`canvas unpack` names the folders by Canvas's id. The first lines are no students."""
    if not is_student(row["student"]):
        return None
    others = tuple(row[k] for k in ("sis login id", "sis user id") if row.get(k))
    who = canvas_id(row["id"], row["student"], where)
    return Person(who, row["student"], row.get("section", ""), others)


def expect_whole_names(columns: Collection[str], path: Path) -> None:
    """InputError if Canvas exported its gradebook with names in two columns."""
    if {"lastname", "firstname"} <= {name.strip().lower() for name in columns}:
        raise InputError(
            f"{path} has the columns LastName and FirstName in place of Student: turn off "
            '"Split Student Names" in Canvas\'s gradebook, and export it again'
        )


def is_student(name: str) -> bool:
    """Whether a line of Canvas's gradebook with this name is a student's."""
    return name.strip() not in NOBODY


def canvas_id(text: str, name: str, where: str) -> str:
    """The id in a line of Canvas's gradebook; InputError unless it is a whole number."""
    if not (text := text.strip()).isdecimal():
        raise InputError(
            f"{where}: the ID of {name} is {text!r}, and Canvas's IDs are whole numbers: export "
            "the gradebook again, and don't save it in a spreadsheet, which changes them"
        )
    return text
