"""From what answers make the checking side do (answer_traces) to features that can be compared.

The features of an answer are the arcs (from line to line) of checks, common/ and grading/; the
kinds of values that its functions return, and of changed arguments; a kernel's operations and a
rank's collectives; and each count that a check names, if it is the largest or smallest of all.
"""

import ast
import builtins
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coverage.parser import PythonParser

from benchmarks import answer_traces
from common.paths import ROOT
from tests.in_one_process import REMARK

SOLUTION, AGAIN = "the solution", "the solution again"  # twice: what differs is noise
MODULES = {"np", "numpy", "torch", "math", "tl", "cuda", "itertools", "functools", "F"}
PARTS = (ast.stmt, ast.operator, ast.boolop, ast.cmpop, ast.comprehension, ast.IfExp, ast.Lambda)

Features = frozenset[str]
Traces = Mapping[str, Mapping[str, Any]]  # {title: what answer_traces.record gave}


@dataclass(eq=False)
class Known:
    """A known right answer, or the solution, and what it adds."""

    title: str
    text: str
    lines: int = 0
    seconds: float = 0.0
    features: Features = frozenset()

    @property
    def style(self) -> Features:
        """What its text is made of."""
        return frozenset(parts_of(ast.parse(self.text)))


def features(traces: Traces, known: Sequence[Known], checks: Sequence[str]) -> dict[str, Features]:
    """{title: its features}. What two runs of the solution do not share is noise, and left out.

    known: the answers, and the solution twice. checks: the texts of the exercise's checks.
    """
    reference = traces[SOLUTION].get("values", {})
    named = {answer_traces.name_of(text): text for text in checks}
    plain = {
        each.title: {
            *_arcs(traces[each.title], named),
            *traces[each.title].get("kinds", ()),
            *_agreement(traces[each.title], reference),
            *_operations(each.text),
        }
        for each in known
    }
    noise = plain[SOLUTION] ^ plain[AGAIN]
    totals = {title: trace.get("totals", {}) for title, trace in traces.items()}
    text = "\n".join(checks) + _executed(traces[SOLUTION])
    for name in sorted({name for each in totals.values() for name in each}):
        counts = {title: each.get(name, 0) for title, each in totals.items()}
        if counts[SOLUTION] != counts[AGAIN] or not _is_asked_for(name, text):
            continue
        for word, extreme in (("most", max(counts.values())), ("least", min(counts.values()))):
            for title in (title for title, count in counts.items() if count == extreme):
                plain[title].add(f"{word} {name}")
    failed = {title for title, trace in traces.items() if problem_of(trace)}
    return {
        title: frozenset() if title in failed else frozenset(each - noise)
        for title, each in plain.items()
    }


def problem_of(trace: Mapping[str, Any]) -> str:
    """Why a trace says nothing; "" if the checks passed."""
    raised = [text for text in trace.get("raised", ()) if text and not text.startswith(REMARK)]
    return trace.get("problem", "") or (raised or [""])[0]


def is_shared(feature: str) -> bool:
    """Whether it counts once per lab: it is about what all checks share, not about one check."""
    own = re.compile(r"arc (/checks|common/checks/(assertions|clinic)|common/lessons/\w+/expected)")
    return feature.startswith("kernel ") or (feature.startswith("arc ") and not own.match(feature))


def _arcs(trace: Mapping[str, Any], checks: Mapping[str, str]) -> Iterator[str]:
    """The arcs that the text of a file has. Where greenlets switch, coverage sees others, too."""
    for file, lines in trace.get("arcs", {}).items():
        parser, possible = _parsed(file, checks.get(file))
        taken = parser.translate_arcs(zip(lines[::2], lines[1::2], strict=True))
        yield from (f"arc {file} {begin} {end}" for begin, end in possible.intersection(taken))


@functools.cache
def _parsed(file: str, check: str | None) -> tuple[PythonParser, set[tuple[int, int]]]:
    """(a parser of this file, or of a check, and the arcs that its text has)."""
    text = (ROOT / file).read_text(encoding="utf-8") if check is None else check
    parser = PythonParser(text=text, filename=file)
    parser.parse_source()
    return parser, set(parser.arcs())


def _executed(trace: Mapping[str, Any]) -> str:
    """The lines of the lab's expected values that were executed."""
    found: list[str] = []
    for file, numbers in trace.get("arcs", {}).items():
        if re.match(r"common/lessons/\w+/expected", file):
            lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
            found += [lines[number - 1] for number in sorted(set(numbers)) if number > 0]
    return "\n".join(found)


def _is_asked_for(count: str, text: str) -> bool:
    """Whether a check names this count: "simt.global_loads.sectors" by its last two words."""
    _, *names = count.split(".")
    return not names or all(re.search(rf"\b{name}", text) for name in names[-2:])


def _agreement(trace: Mapping[str, Any], reference: Mapping[str, Any]) -> Iterator[str]:
    """How the values that functions returned differ from the solution's, call by call.

    Of functions whose values hold no floats, each first right value that the solution does not
    give is a feature of its own: another order of tasks, say, or another graph.
    """
    kinds = "the solution's bits", "other bits", "another order"
    for name, values in trace.get("values", {}).items():
        others = []
        for ours, theirs in zip(values, reference.get(name, ()), strict=False):
            same = [a == b for a, b in zip(ours, theirs, strict=True)]
            if any(same):
                yield f"{name} returns {kinds[same.index(True)]}"
            else:
                others.append(ours[-1])
        if others:
            kind = [kind for kind in trace["kinds"] if kind.startswith(f"{name} returns ")]
            which = "" if "float" in str(kind) else f" {others[0]}"
            yield f"{name} returns another right value{which}"


def _operations(text: str) -> Iterator[str]:
    """What the kernels in a cell are made of: statements, operators, names of the language."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any(
            "jit" in ast.unparse(each) for each in node.decorator_list
        ):
            yield from (f"kernel {part}" for part in parts_of(node))


def parts_of(tree: ast.AST) -> Iterator[str]:
    """Kinds of statements and operators; what is called, of modules and of objects."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in own:
                yield "recursion"
            elif name.split(".")[0] in MODULES or hasattr(builtins, name):
                yield name
            elif isinstance(node.func, ast.Attribute):
                yield f".{node.func.attr}"
        elif isinstance(node, PARTS):
            yield type(node).__name__


def own(features: Features) -> Features:
    """Those that count once per exercise."""
    return frozenset(each for each in features if not is_shared(each))


def shared(features: Features) -> Features:
    """Those that count once per lab."""
    return frozenset(each for each in features if is_shared(each))
