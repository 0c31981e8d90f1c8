"""Similar submissions: pairs of students whose answers share more than lab and class explain.

copydetect compares fingerprints of the code with its names replaced, so it finds a copy with
renamed variables. What the lab gives, or what many students wrote, is left out. Students are also
compared with our solution and with earlier submissions, which are not compared with each other.
"""

import ast
import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from common.files import replace
from grading.feedback import MAX_LINE, template
from grading.report import Graded
from grading.source.labs import Lab

TOKENS = 25  # the shortest run of tokens that counts
SHARE = 0.5  # of the shorter submission's code
LEAST = 400  # characters of the essence of answers that are called equal
MOST_PAIRS = 200  # on the page
MOST_LINES, ALL_LINES = 300, 20_000  # on the page: of each answer of a pair, of all pairs
MOST_COMPARED = 50_000  # characters of a student's answers to a lab; beyond it, time grows fast
MOST_COMPARISONS = 3_000  # of two students' answers to a lab: those that have most in common
SOLUTION = "(our solution)"
MANY, AT_MOST = 0.1, 50  # of the class, and more than 3 students: then they had the same idea

Lines = tuple[tuple[int, str], ...]  # (number, text)


@dataclass(frozen=True)
class Pair:
    """Two students' similar answers to a lab."""

    lab: str
    students: tuple[str, str]
    share: float  # of the shorter one's code
    lines: tuple[Lines, Lines]  # the similar ones of each student


@dataclass(frozen=True)
class Work:
    """What somebody wrote for a lab."""

    who: str
    lab: Lab
    code: str
    is_new: bool  # of this class


def works(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> dict[str, list[Work]]:
    """{lab: the works to compare}: those of the class, earlier ones, and our solution."""
    by_lab: dict[str, list[Work]] = {}
    for is_new, group in ((True, graded), (False, earlier)):
        for one in group:
            work = Work(one.submission.student, one.lab, _code(one), is_new)
            if is_new or one.lab.name in by_lab:
                by_lab.setdefault(one.lab.name, []).append(work)
    for group in by_lab.values():
        lab = group[0].lab
        group.append(Work(SOLUTION, lab, "\n\n".join(lab.solution.values()), is_new=False))
    return by_lab


def pairs(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> list[Pair]:
    """The pairs, those that share most first. It needs the package copydetect."""
    by_lab = works(graded, earlier)
    similar = [pair for group in by_lab.values() for pair in _pairs(group[0].lab, group)]
    return sorted(
        similar, key=lambda pair: (-pair.share, -len(pair.lines[0]), pair.lab, pair.students)
    )


def _pairs(lab: Lab, group: Iterable[Work]) -> Iterator[Pair]:
    from copydetect import compare_files

    code = {one.who: one.code[:MOST_COMPARED] for one in group if one.code}
    common = _common(lab, code.values())
    prints = {who: _fingerprint(text, common) for who, text in code.items()}
    for first, second in _candidates(prints, {one.who for one in group if one.is_new}):
        _, shares, slices = compare_files(prints[first], prints[second])
        if max(shares) >= SHARE:
            lines = _lines(code[first], slices[0]), _lines(code[second], slices[1])
            yield Pair(lab.name, (first, second), min(1.0, float(max(shares))), lines)


def _candidates(prints: Mapping[str, Any], new: Set[str]) -> list[tuple[str, str]]:
    """The pairs to compare, at least one of them new: those that have most marks in common."""
    having: dict[int, list[str]] = {}
    for who in sorted(prints):
        for mark in prints[who].hashes:
            having.setdefault(mark, []).append(who)
    shared: Counter[tuple[str, str]] = Counter()
    for holders in having.values():
        shared.update(combinations(holders, 2))
    shares = {
        pair: count / min(len(prints[who].hashes) for who in pair)
        for pair, count in shared.items()
        if not new.isdisjoint(pair)
    }
    return sorted(shares, key=lambda pair: (-shares[pair], pair))[:MOST_COMPARISONS]


@dataclass(frozen=True)
class Ring:
    """Students whose answers to a lab are equal but for names, comments and layout."""

    lab: str
    students: tuple[str, ...]  # SOLUTION among them if ours is one of these answers


def rings(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> list[Ring]:
    """The groups of equal answers, however many share one: at least one of them is of the class."""
    groups: dict[tuple[str, str], list[Work]] = {}
    for name, group in works(graded, earlier).items():
        for one in group:
            essence = _essence(one.code)
            if len(essence) >= LEAST:
                groups.setdefault((name, essence), []).append(one)
    equal = [
        Ring(lab, tuple(dict.fromkeys(one.who for one in group)))
        for (lab, _), group in groups.items()
        if any(one.is_new for one in group) and len({one.who for one in group}) > 1
    ]
    return sorted(equal, key=lambda ring: (-len(ring.students), ring.lab, ring.students))


def _essence(code: str) -> str:
    """The code without comments, docstrings and layout; names are numbered as they come."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    numbers: dict[str, str] = {}
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and len(body) > 1 else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            del body[0]
        for field in ("id", "arg"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, numbers.setdefault(name, f"n{len(numbers)}"))
    try:
        return ast.unparse(tree)
    except RecursionError:
        return code


def write(
    similar: Iterable[Pair],
    folder: Path,
    equal: Iterable[Ring] = (),
    earlier: Mapping[str, int] | None = None,
) -> None:
    """The groups and pairs as a page, similar.html, with the lines of a pair side by side.

    earlier: how many earlier submissions of each folder were compared, by its name.
    """
    found = list(similar)
    shown = min(MOST_LINES, ALL_LINES // (2 * max(1, min(len(found), MOST_PAIRS))))
    page = template("similar.html").render(
        pairs=found[:MOST_PAIRS],
        more=max(0, len(found) - MOST_PAIRS),
        rings=list(equal),
        earlier=earlier or {},
        most_lines=shown,
        longest=MAX_LINE,
        most_compared=MOST_COMPARED,
    )
    replace(folder / "similar.html", page)


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
    most = min(AT_MOST, max(3, MANY * len(texts)))
    many = {mark for mark, count in counts.items() if count > most}
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
