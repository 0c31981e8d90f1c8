"""Similar submissions: pairs of students whose answers share more than lab and class explain.

Answers are compared in their normal form (see grading.source.normal), so idle statements, wrappers
and new names hide nothing. Compared are its pieces: statements and the larger expressions in them,
in any order. What the lab gives, or what many students wrote, is left out. Students are also
compared with our solution and with earlier submissions, which are not compared with each other.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from common.files import replace
from grading.feedback import MAX_LINE, template
from grading.report import Graded
from grading.source import normal
from grading.source.labs import Lab

SHARE = 0.5  # of the pieces of the answers that have fewer
LEAST = 8  # pieces that two students' answers share: short answers are alike by chance
EQUAL = 0.75  # of two answers' pieces (a line is in several): so a few other lines hide nothing
FEWEST = 30  # pieces of answers that are called equal
MOST_TEXTS = 500  # different answers to a lab of which each is compared with each
MOST_PAIRS = 200  # on the page
MOST_LINES, ALL_LINES = 300, 20_000  # on the page: of each answer of a pair, of all pairs
MOST_COMPARED = 50_000  # characters of a student's answers to a lab, the shortest answers first
MOST_PRINTS = 5_000  # answers to a lab of which pieces are kept, about 50 kB each
MOST_COMPARISONS = 3_000  # of two students' answers to a lab, line by line: those that share most
SOLUTION = "(our solution)"
MANY, AT_MOST = 0.1, 50  # of the class, and more than 3 students: then they had the same idea

Lines = tuple[tuple[int, str], ...]  # (number, text)
Print = Mapping[int, Sequence[range]]  # {a piece's hash: the lines of each that is written so}


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
    cells: tuple[str, ...]
    is_new: bool  # of this class

    @property
    def lines(self) -> list[str]:
        return "\n".join(self.cells).split("\n")


def works(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> dict[str, list[Work]]:
    """{lab: the works to compare}: those of the class, earlier ones, and our solution."""
    by_lab: dict[str, list[Work]] = {}
    for is_new, group in ((True, graded), (False, earlier)):
        for one in group:
            work = Work(one.submission.student, one.lab, _cells(one), is_new)
            if is_new or one.lab.name in by_lab:
                by_lab.setdefault(one.lab.name, []).append(work)
    for group in by_lab.values():
        lab = group[0].lab
        group.append(Work(SOLUTION, lab, tuple(lab.solution.values()), is_new=False))
    return by_lab


def pairs(graded: Iterable[Graded], earlier: Iterable[Graded] = ()) -> list[Pair]:
    """The pairs, those that share most first."""
    by_lab = works(graded, earlier)
    similar = [pair for group in by_lab.values() for pair in _pairs(group)]
    return sorted(
        similar, key=lambda pair: (-pair.share, -len(pair.lines[0]), pair.lab, pair.students)
    )


def _pairs(group: Sequence[Work]) -> Iterator[Pair]:
    lab, by_name = group[0].lab, {one.who: one for one in group}
    prints = _without_common({who: _print(one.cells) for who, one in by_name.items()}, lab)
    shares = _shares(prints, {one.who for one in group if one.is_new})
    most = sorted(shares, key=lambda pair: (-shares[pair], pair))[:MOST_COMPARISONS]
    for first, second in most:
        both = prints[first].keys() & prints[second].keys()
        lines = [_lines(by_name[who].lines, both, prints[who]) for who in (first, second)]
        yield Pair(lab.name, (first, second), shares[first, second], (lines[0], lines[1]))


def _shares(prints: Mapping[str, Print], new: Set[str]) -> dict[tuple[str, str], float]:
    """{similar students, at least one of them new: the share of pieces that both have}."""
    having: dict[int, list[str]] = {}
    for who in sorted(prints):
        for piece in prints[who]:
            having.setdefault(piece, []).append(who)
    shared: Counter[tuple[str, str]] = Counter()
    for holders in having.values():
        shared.update(combinations(holders, 2))
    shares = {
        pair: count / min(len(prints[who]) for who in pair)
        for pair, count in shared.items()
        if count >= LEAST and not new.isdisjoint(pair)
    }
    return {pair: share for pair, share in shares.items() if share >= SHARE}


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
        texts = _by_pieces(group)
        identical = [_ring(name, alike, True) for alike in _identical(texts.values())]
        together = (
            [work for text in alike for work in texts[frozenset(text.items())]]
            for alike in _alike(list(map(dict, texts)))
        )
        equal = (_ring(name, alike) for alike in together if _is_ring(alike))
        known = {ring.students for ring in identical}
        found += [*identical, *(ring for ring in equal if ring.students not in known)]
    return sorted(
        found, key=lambda ring: (not ring.identical, -len(ring.students), ring.lab, ring.students)
    )


def _by_pieces(group: Sequence[Work]) -> dict[frozenset[tuple[int, int]], list[Work]]:
    """{(piece, how often it stands there) of all own pieces: works that have these}.

    Works with few are left out.
    """
    given = _given(group[0].lab)
    texts: dict[frozenset[tuple[int, int]], list[Work]] = {}
    for one in group:
        found = _print(one.cells)
        own = {piece: len(spans) for piece, spans in found.items() if piece not in given}
        if sum(own.values()) >= FEWEST:
            texts.setdefault(frozenset(own.items()), []).append(one)
    return texts


def _identical(groups: Iterable[Iterable[Work]]) -> Iterator[list[Work]]:
    """The works that are the same letter by letter. groups: works of the same pieces."""
    for group in groups:
        codes: dict[tuple[str, ...], list[Work]] = {}
        for one in group:
            codes.setdefault(one.cells, []).append(one)
        yield from filter(_is_ring, codes.values())


def _is_ring(group: Collection[Work]) -> bool:
    return any(one.is_new for one in group) and len({one.who for one in group}) > 1


def _ring(lab: str, group: Iterable[Work], identical: bool = False) -> Ring:
    return Ring(lab, tuple(dict.fromkeys(one.who for one in group)), identical)


def _alike(texts: Sequence[Mapping[int, int]]) -> list[list[Mapping[int, int]]]:
    """The texts in groups. A text joins the first group whose first text it nearly equals.

    texts: {piece: how often it stands there} of each.
    """
    groups: list[tuple[Counter[int], list[Mapping[int, int]]]] = []
    for text in texts:
        own = Counter(text)
        near = (alike for first, alike in groups[:MOST_TEXTS] if _share(own, first) >= EQUAL)
        alike = next(near, None)
        if alike is None:
            groups.append((own, [text]))
        else:
            alike.append(text)
    return [alike for _, alike in groups]


def _share(first: Counter[int], second: Counter[int]) -> float:
    """How much of two answers' pieces both have, from 0 to 1."""
    total = first.total() + second.total()
    if 2 * min(first.total(), second.total()) < EQUAL * total:
        return 0.0
    return 2 * sum(min(count, second[piece]) for piece, count in first.items()) / total


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


def _cells(one: Graded) -> tuple[str, ...]:
    """What a student wrote for a lab, in the lab's order."""
    answers = one.answers or {}
    cells = [answers[e.name] for e in one.lab.exercises if e.name in answers]
    return tuple(cell.text for cell in cells if cell.attempted and cell.text)


def _given(lab: Lab) -> Print:
    """The pieces of the lab's own text."""
    return _print(tuple(exercise.stub for exercise in lab.exercises))


@functools.lru_cache(maxsize=MOST_PRINTS)  # pairs and rings need the same ones
def _print(cells: tuple[str, ...]) -> Print:
    """The pieces of the normal form of these answers."""
    spans: dict[int, list[range]] = {}
    for text, lines in normal.pieces(_compared(cells)):
        spans.setdefault(hash(text), []).append(lines)
    return spans


def _compared(cells: Sequence[str]) -> list[str]:
    """The cells; instead of those that are too long to compare, as many empty lines."""
    left, compared = MOST_COMPARED, list(cells)
    for place in sorted(range(len(cells)), key=lambda place: len(cells[place])):
        left -= len(cells[place])
        if left < 0:
            compared[place] = "\n" * cells[place].count("\n")
    return compared


def _without_common(prints: Mapping[str, Print], lab: Lab) -> dict[str, Print]:
    """Without the pieces that say nothing: those of the lab's own text, and of many students."""
    counts = Counter(piece for found in prints.values() for piece in found)
    most = min(AT_MOST, max(3, MANY * len(prints)))
    common = {piece for piece, count in counts.items() if count > most}
    common |= _given(lab).keys()
    return {
        who: {piece: spans for piece, spans in found.items() if piece not in common}
        for who, found in prints.items()
    }


def _lines(text: Sequence[str], pieces: Iterable[int], found: Print) -> Lines:
    """The lines on which these pieces stand."""
    numbers = {number for piece in pieces for lines in found[piece] for number in lines}
    touched = [(number, text[number - 1]) for number in sorted(numbers) if number <= len(text)]
    return tuple((number, line) for number, line in touched if line.strip())
