"""Similar submissions: pairs of students whose answers share more than lab and class explain.

copydetect compares fingerprints of the code with its names replaced, so it finds a copy with
renamed variables. What the lab gives, or what many students wrote, is left out.
"""

import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from common.files import replace
from grading.feedback import template
from grading.report import Graded
from grading.source.labs import Lab

TOKENS = 25  # the shortest run of tokens that counts
SHARE = 0.5  # of the shorter submission's code
MANY = 0.1  # of the class, and more than 3 students: then they had the same idea

Lines = tuple[tuple[int, str], ...]  # (number, text)


@dataclass(frozen=True)
class Pair:
    """Two students' similar answers to a lab."""

    lab: str
    students: tuple[str, str]
    share: float  # of the shorter one's code
    lines: tuple[Lines, Lines]  # the similar ones of each student


def pairs(graded: Iterable[Graded]) -> list[Pair]:
    """The pairs, those that share most first. It needs the package copydetect."""
    by_lab: dict[str, list[Graded]] = {}
    for one in graded:
        by_lab.setdefault(one.lab.name, []).append(one)
    similar = [pair for group in by_lab.values() for pair in _pairs(group[0].lab, group)]
    return sorted(
        similar, key=lambda pair: (-pair.share, -len(pair.lines[0]), pair.lab, pair.students)
    )


def _pairs(lab: Lab, group: Iterable[Graded]) -> Iterator[Pair]:
    from copydetect import compare_files

    code = {one.submission.student: _code(one) for one in group}
    code = {student: text for student, text in code.items() if text}
    common = _common(lab, code.values())
    prints = {student: _fingerprint(text, common) for student, text in code.items()}
    students = [student for student in sorted(prints) if prints[student].hashes]
    for first, second in combinations(students, 2):
        if prints[first].hashes & prints[second].hashes:
            _, shares, slices = compare_files(prints[first], prints[second])
            if max(shares) >= SHARE:
                lines = _lines(code[first], slices[0]), _lines(code[second], slices[1])
                yield Pair(lab.name, (first, second), min(1.0, float(max(shares))), lines)


def write(similar: Iterable[Pair], folder: Path) -> None:
    """The pairs as a page, similar.html, with the lines side by side."""
    replace(folder / "similar.html", template("similar.html").render(pairs=list(similar)))


def _code(one: Graded) -> str:
    """What a student wrote for a lab, in the lab's order."""
    answers = one.answers or {}
    cells = [answers[e.name] for e in one.lab.exercises if e.name in answers]
    return "\n\n".join(cell.text for cell in cells if cell.attempted and cell.text)


def _fingerprint(text: str, boilerplate: Collection[int] = ()) -> Any:
    from copydetect import CodeFingerprint

    return CodeFingerprint(
        "answers.py", TOKENS, 1, boilerplate=list(boilerplate), fp=io.StringIO(text)
    )


def _common(lab: Lab, texts: Collection[str]) -> list[int]:
    """The hashes that say nothing: those of the lab's own text, and those of many students."""
    counts = Counter(mark for text in texts for mark in set(_fingerprint(text).hashes))
    many = {mark for mark, count in counts.items() if count > max(3, MANY * len(texts))}
    stubs = "\n\n".join(exercise.stub for exercise in lab.exercises)
    return sorted(many | set(_fingerprint(stubs).hashes))


def _lines(text: str, spans: Iterable[Iterable[int]]) -> Lines:
    """The lines that these spans of characters touch. spans: (starts, ends)."""
    numbers: set[int] = set()
    for start, end in zip(*spans, strict=True):
        first = text.count("\n", 0, int(start)) + 1
        last = text.count("\n", 0, max(int(start), int(end) - 1)) + 1
        numbers.update(range(first, last + 1))
    lines = text.splitlines()
    touched = [(n, lines[n - 1]) for n in sorted(numbers) if n <= len(lines)]
    return tuple((n, line) for n, line in touched if line.strip())
