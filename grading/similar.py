"""Similar submissions: pairs of students whose answers share more than lab and class explain.

copydetect compares fingerprints of the code with its names replaced, so it finds a copy with
renamed variables. What the lab gives, or what many students wrote, is left out. Students are also
compared with our solution and with earlier submissions, which are not compared with each other.
"""

import ast
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeGuard

from common.files import replace
from grading.feedback import MAX_LINE, template
from grading.report import Graded
from grading.source.labs import Lab

TOKENS = 25  # the shortest run of tokens that counts
SHARE = 0.5  # of the shorter submission's code
FEWEST = 10  # statements of answers that are called equal, without functions of one statement
EQUAL = (
    0.9  # of two answers' statements: so a line that was put in, moved or left out hides nothing
)
MOST_TEXTS = 500  # different answers to a lab of which each is compared with each
MOST_PAIRS = 200  # on the page
MOST_LINES, ALL_LINES = 300, 20_000  # on the page: of each answer of a pair, of all pairs
MOST_COMPARED = 50_000  # characters of a student's answers to a lab; beyond it, time grows fast
MOST_COMPARISONS = 3_000  # of two students' answers to a lab: those that have most in common
SOLUTION = "(our solution)"
MANY, AT_MOST = 0.1, 50  # of the class, and more than 3 students: then they had the same idea

NAME = re.compile(r"\b(?:id|arg)='\w+'")
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
    """Students whose answers to a lab are equal but for names, comments and a few lines."""

    lab: str
    students: tuple[str, ...]  # SOLUTION among them if ours is one of these answers
    identical: bool = False  # letter by letter, in the whole lab


def rings(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> list[Ring]:
    """The groups of equal answers, however many share one: at least one of them is of the class.

    Identical ones come first, also where more are equal to them.
    """
    found: list[Ring] = []
    for name, group in works(graded, earlier).items():
        texts = _by_statements(group)
        identical = [_ring(name, alike, True) for alike in _identical(texts.values())]
        together = ([w for text in alike for w in texts[text]] for alike in _alike(list(texts)))
        equal = (_ring(name, alike) for alike in together if _is_ring(alike))
        known = {ring.students for ring in identical}
        found += [*identical, *(ring for ring in equal if ring.students not in known)]
    return sorted(
        found, key=lambda ring: (not ring.identical, -len(ring.students), ring.lab, ring.students)
    )


def _by_statements(group: Sequence[Work]) -> dict[tuple[str, ...], list[Work]]:
    """{their own statements, sorted: works that have these}. Works with few are left out."""
    given = Counter(_statements("\n\n".join(e.stub for e in group[0].lab.exercises)))
    texts: dict[tuple[str, ...], list[Work]] = {}
    for one in group:
        own = Counter(_statements(one.code[:MOST_COMPARED])) - given
        if own.total() >= FEWEST:
            texts.setdefault(tuple(sorted(own.elements())), []).append(one)
    return texts


def _identical(groups: Iterable[Iterable[Work]]) -> Iterator[list[Work]]:
    """The works that are the same letter by letter. groups: works of the same statements."""
    for group in groups:
        codes: dict[str, list[Work]] = {}
        for one in group:
            codes.setdefault(one.code, []).append(one)
        yield from filter(_is_ring, codes.values())


def _is_ring(group: Collection[Work]) -> bool:
    return any(one.is_new for one in group) and len({one.who for one in group}) > 1


def _ring(lab: str, group: Iterable[Work], identical: bool = False) -> Ring:
    return Ring(lab, tuple(dict.fromkeys(one.who for one in group)), identical)


def _alike(texts: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """The texts in groups. A text joins the first group whose first text it nearly equals.

    texts: each one's statements, sorted.
    """
    groups: list[tuple[Counter[str], list[tuple[str, ...]]]] = []
    for text in texts:
        own = Counter(text)
        near = (alike for first, alike in groups[:MOST_TEXTS] if _share(own, first) >= EQUAL)
        alike = next(near, None)
        if alike is None:
            groups.append((own, [text]))
        else:
            alike.append(text)
    return [alike for _, alike in groups]


def _share(first: Counter[str], second: Counter[str]) -> float:
    """How much of two answers' statements both have, from 0 to 1."""
    total = first.total() + second.total()
    if 2 * min(first.total(), second.total()) < EQUAL * total:
        return 0.0
    return 2 * sum(min(count, second[text]) for text, count in first.items()) / total


def _statements(code: str) -> list[str]:
    """Each statement on its own, without comments, annotations and layout, in one way of writing.

    Names are numbered within a statement. Left out is what does nothing (docstrings, `pass`), and
    what is the only statement of its function: there may be one natural way to write it.
    """
    found: list[str] = []
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
        bodies = [[s for s in f.body if not _does_nothing(s)] for f in nodes if _is_function(f)]
        alone = {id(body[0]) for body in bodies if len(body) == 1}
        for node in nodes:
            if not (_is_function(node) or _does_nothing(node) or id(node) in alone):
                found.append(_bare(node))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [" ".join(line.split()) for line in code.splitlines() if line.strip()]
    return found


def _is_function(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _does_nothing(node: ast.stmt) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or isinstance(node, ast.Pass | ast.Import | ast.ImportFrom)


def _bare(node: ast.stmt) -> str:
    """A statement without those in it: their text is their own."""
    if isinstance(node, ast.AnnAssign) and node.value:
        node = ast.Assign([node.target], node.value, lineno=0)
    parts = {"body", "orelse", "finalbody", "handlers", "cases"}
    heads = [value for field, value in ast.iter_fields(node) if field not in parts]
    numbers: dict[str, str] = {}
    text = f"{type(node).__name__} {' '.join(map(_dumped, heads))}"
    return NAME.sub(lambda name: numbers.setdefault(name[0], f"n{len(numbers)}"), text)


def _dumped(value: Any) -> str:
    several = value if isinstance(value, list) else [value]
    return ", ".join(ast.dump(v) if isinstance(v, ast.AST) else repr(v) for v in several)


def write(
    similar: Iterable[Pair],
    folder: Path,
    equal: Iterable[Ring] = (),
    earlier: Mapping[str, int] | None = None,
    name: Callable[[str], str] = str,
) -> None:
    """The groups and pairs as a page, similar.html, with the lines of a pair side by side.

    earlier: how many earlier submissions of each folder were compared, by its name.
    name: of a student's folder.
    """
    found = list(similar)
    shown = min(MOST_LINES, ALL_LINES // (2 * max(1, min(len(found), MOST_PAIRS))))
    page = template("similar.html").render(
        pairs=found[:MOST_PAIRS],
        more=max(0, len(found) - MOST_PAIRS),
        rings=list(equal),
        earlier=earlier or {},
        person=name,
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
