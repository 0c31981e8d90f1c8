"""Known answers: tests/labs/NOUN/wrong.py holds mistakes that a lab's checks must refuse, and
tests/labs/NOUN/right.py right answers in other styles, which they must accept.

Write only the mistake. The title names the exercise; `says` holds words of the check's message:

    # %% wide_matmul_kernel: the bias read beyond its end
    # says: loads element 56 of bias, which has 56 elements
    # edit: column < N  ->  column <= N

An edit changes the text of the solution: the hole's cell with its answer, without docstrings.
`# edit: OLD  ->  NEW` replaces a piece of one line; two spaces stand on either side of the arrow.
If OLD stands in several places and all of them change, say how many:

    # edit (2 places): x.sum(0)  ->  x.sum(1)

Whole lines change as in a diff: `-` removes a line, `+` adds one, and a line without a sign shows
the place. The block as a whole may be indented less than in the solution:

    #   for size in shape:
    # -     step *= size
    #       strides.append(step)
    # +     step *= size

Several edits are applied in order. `# ...` separates two blocks of lines. Each edit must fit the
text in exactly one place, or in as many as it says. Otherwise the gate fails and says why: so no
answer goes stale when a solution changes.

If an answer has little in common with the solution, write its whole cell below `says` instead.
Right answers have the same form without `says`; their title names the style.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.paths import ROOT

Kind = Literal["wrong", "right"]
TITLE = re.compile(r"^# %% (.+)\n", re.MULTILINE)
SAYS = re.compile(r"# says: (.+)\n")
REPLACEMENT = re.compile(r"# edit(?: \((\d+) places\))?: (.+?)  ->  (.+)")
LINE = re.compile(r"#$|# [-+ ]( |$)")


@dataclass(frozen=True)
class Replacement:
    """A piece of a line that becomes another one, in this many places."""

    old: str
    new: str
    places: int

    def apply(self, text: str) -> str:
        start, end = (
            r"\b" if re.match(r"\w", char) else "" for char in (self.old[0], self.old[-1])
        )
        pattern = re.compile(start + re.escape(self.old) + end)
        _expect_places(len(pattern.findall(text)), self.places, f"`{self.old}`")
        return pattern.sub(lambda _: self.new, text)


@dataclass(frozen=True)
class Block:
    """Lines of a diff: (" ", "-" or "+", text)."""

    lines: tuple[tuple[str, str], ...]

    def apply(self, text: str) -> str:
        lines = text.splitlines()
        old = [line for sign, line in self.lines if sign != "+"]
        if not old:
            raise ValueError("a block of new lines alone does not say where they go")
        starts = range(len(lines) - len(old) + 1)
        places = [start for start in starts if _indent(lines[start:], old) is not None]
        _expect_places(len(places), 1, f"the block that begins with `{old[0].strip()}`")
        start, end = places[0], places[0] + len(old)
        indent = _indent(lines[start:], old)
        new = [f"{indent}{line}".rstrip() for sign, line in self.lines if sign != "-"]
        return "\n".join([*lines[:start], *new, *lines[end:]])


@dataclass(frozen=True)
class KnownAnswer:
    """One mistake, or one other style: edits of the solution, or a whole cell."""

    exercise: str
    title: str
    says: str  # "" for a right answer
    edits: tuple[Replacement | Block, ...]
    cell: str

    def text(self, solved: str) -> str:
        """The student's cell. solved: the text of the hole with its answer."""
        text = self.cell or without_docstrings(solved)
        for edit in self.edits:
            try:
                text = edit.apply(text)
            except ValueError as problem:
                raise ValueError(f"{self.title}: {problem}") from None
        return text


def path_of(lab: str, kind: Kind) -> Path:
    """The file of a lab's known answers."""
    return ROOT / "tests" / "labs" / lab.partition("_")[2] / f"{kind}.py"


def read(lab: str, kind: Kind = "wrong") -> list[KnownAnswer]:
    """The known answers of a lab; ValueError says which one cannot be read, and why."""
    path = path_of(lab, kind)
    if kind == "right" and not path.exists():
        return []
    _, *parts = TITLE.split(path.read_text(encoding="utf-8"))
    return [parse(title, body, kind) for title, body in zip(parts[::2], parts[1::2], strict=True)]


def parse(title: str, body: str, kind: Kind = "wrong") -> KnownAnswer:
    """The answer of this title, from the lines below it."""
    says = SAYS.match(body)
    if kind == "wrong" and not says:
        raise ValueError(f"{title}: its first line must be `# says: words of the message`")
    rest = body[says.end() if says else 0 :].strip("\n")
    lines = rest.splitlines()
    edits = _edits(title, lines) if all(line.startswith("#") for line in lines) else ()
    if not rest.strip():
        raise ValueError(f"{title}: neither an edit nor a cell follows")
    promised = says[1].strip() if says else ""
    return KnownAnswer(title.split(":")[0], title, promised, edits, "" if edits else rest)


def without_docstrings(text: str) -> str:
    """The text of a cell without the docstrings of its functions and classes."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return "\n".join(line for number, line in lines if number not in docstrings)


def _edits(title: str, lines: list[str]) -> tuple[Replacement | Block, ...]:
    edits: list[Replacement | Block] = []
    block: tuple[tuple[str, str], ...] = ()
    for line in lines:
        if LINE.match(line):
            if block:
                edits.pop()
            block = (*block, (line[2:3] or " ", line[4:]))
            edits.append(Block(block))
            continue
        block = ()
        if replacement := REPLACEMENT.fullmatch(line):
            places, old, new = replacement.groups()
            edits.append(Replacement(old, new, int(places or 1)))
        elif line != "# ...":
            raise ValueError(f"{title}: `{line}` is no edit (see tests/known_answers.py)")
    return tuple(edits)


def _expect_places(count: int, wanted: int, what: str) -> None:
    if count != wanted:
        raise ValueError(f"{what} stands in {count} places of the solution, not in {wanted}")


def _indent(lines: list[str], old: list[str]) -> str | None:
    """By how much more than a block the first lines are indented; None if they differ."""
    indent = lines[0].removesuffix(old[0])
    shifted = [f"{indent}{line}".rstrip() for line in old]
    same = shifted == [line.rstrip() for line in lines[: len(old)]]
    return indent if same and not indent.strip() else None
