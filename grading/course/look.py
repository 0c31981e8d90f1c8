"""Which submissions a person should look at, and why."""

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from common.checks import static_names
from common.notebook import slices
from grading import report
from grading.report import Graded
from grading.source.holes import Answer
from grading.source.labs import Lab

# What answers have no use for: the grader's own names, and ways into a process's other modules.
WORDS = static_names.FRAMES | {
    *("WorkerServer", "resolve_name", "get_field", "findsource", "getsource"),
}
INTERNALS = re.compile(
    rf"\b((?:{'|'.join(sorted(WORDS))})\b"
    r"|__ask__|_only|_link|_recorder|__globals__|__subclasses__|__reduce__"
    r"|__closure__|__code__|__builtins__|__course_builtins__"
    r"|sys\.modules|ctypes|grading\.\w+|linecache"
    r"|(?:common|nogpu)\.(?:checks|remote|ranks\.\w+)|lessons\.\w+\.(?:expected|clinic)|globals\(\)|importlib|os\._exit|/proc"
    # The last two tell the network that a unit computes.
    r"|clinic(?:_\w+|\.\w+)|units\.marker|\.mark(?=\())"
)
LONG_CHARACTERS = 20_000
SLOW_S = 60.0
MANY_RESTARTS = 3


@dataclass(frozen=True)
class Look:
    """A submission to look at."""

    student: str
    lab: str  # NN_noun
    reasons: tuple[str, ...]

    @property
    def only_late(self) -> bool:
        """Whether there is no other reason: such lines come last."""
        return all(re.fullmatch(r"(\d+ h )?\d+ min late", reason) for reason in self.reasons)


def at(graded: Iterable[Graded], strangers: Collection[str] = ()) -> list[Look]:
    """The submissions to look at, with all reasons. strangers: folders of nobody on the roster."""
    graded = list(graded)
    names = {one.lab.name[:2]: one.lab.name for one in graded}
    known = {(student, names[lab]): reason for student, lab, reason in report.to_look_at(graded)}
    looks = []
    for one in graded:
        key = one.submission.student, one.lab.name
        unknown = "not on the roster" if one.submission.student in strangers else ""
        reasons = (*filter(None, [known.get(key, ""), unknown]), *_reasons(one))
        if reasons:
            looks.append(Look(*key, reasons))
    return looks


def _reasons(one: Graded) -> Iterable[str]:
    for name, answer in (one.answers or {}).items():
        yield from _of_answer(one.lab, name, _executed(answer))  # whether attempted or not
    if (seconds := sum(result.seconds for result in one.results)) > SLOW_S:
        yield f"its checks took {seconds:.0f} s"
    if (restarts := sum(result.restarts for result in one.results)) >= MANY_RESTARTS:
        yield f"its process ended {restarts} times"


def _executed(answer: Answer) -> str:
    """All of the student's text that the grader may execute for an answer."""
    cells = answer.whole if answer.left_out else ()
    return "\n".join(dict.fromkeys([*answer.needed, answer.text or "", *cells]))


@functools.lru_cache(maxsize=10_000)  # the summary and the class's page ask for the same
def _of_answer(lab: Lab, name: str, text: str) -> tuple[str, ...]:
    """The reasons that are in the text of an answer."""
    imported = {origin.partition(".")[0] for _, origin in _imports(text)}
    words = sorted(set(INTERNALS.findall(text)) - _ours(lab, name) | imported & {"gc"})
    calls, patched = _course(lab, text), sorted(set(_patched(lab, text)))
    reasons = {
        f"{name} names {', '.join(words[:4])}": words,
        f"{name} uses {', '.join(calls[:4])} of common, which the lab does not show": calls,
        f"{name} sets {', '.join(patched[:4])}": patched,
        f"{name} has {len(text):,} characters": len(text) > LONG_CHARACTERS,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


@functools.cache
def _ours(lab: Lab, name: str) -> frozenset[str]:
    """What the stub itself names."""
    return frozenset(INTERNALS.findall(lab.exercise(name).stub))


def _course(lab: Lab, text: str) -> list[str]:
    """What an answer uses of common/ that no cell of the lab names: it may do the work."""
    given, words = _shown(lab)
    own = list(_imports(text))
    imported = given | dict(own)
    asked = {origin.split(".")[-1] for _, origin in own if _is_ours(origin)}
    asked |= {
        attribute for name, attribute in _attributes(text) if _is_ours(imported.get(name, ""))
    }
    return sorted(asked - words)


def _patched(lab: Lab, text: str) -> Iterator[str]:
    """The attributes of imported modules, and of what is in them, that an answer sets."""
    given, _ = _shown(lab)
    modules = given.keys() | dict(_imports(text)).keys()
    for node in _nodes(text):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            path = ast.unparse(node)
            if path.partition(".")[0] in modules:
                yield path


@functools.cache
def _shown(lab: Lab) -> tuple[dict[str, str], frozenset[str]]:
    """(what the lab imports before an answer is executed, as _imports gives it; all its words)."""
    run = [cell.source for cell in lab.cells if {"setup", "driver"} & set(cell.tags)]
    words = {word for cell in lab.cells for word in re.findall(r"\w+", cell.source)}
    return dict(_imports("\n".join(run))), frozenset(words)


def _is_ours(origin: str) -> bool:
    """Whether this comes from common/; what nogpu.cuda has is Numba's."""
    return origin.startswith(("common.", "nogpu.")) and not origin.startswith(
        ("nogpu.cuda", "common.notebook.ipython_names")
    )


def _imports(text: str) -> Iterator[tuple[str, str]]:
    """(name, what it stands for) of all that a text imports."""
    for node in _nodes(text):
        if isinstance(node, slices.IMPORTS):
            module = getattr(node, "module", None)
            for alias in node.names:
                origin = f"{module}.{alias.name}" if module else alias.name
                yield alias.asname or alias.name.partition(".")[0], origin


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """(x, y) of each x.y in a text."""
    for node in _nodes(text):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr


@functools.lru_cache(maxsize=100)
def _nodes(text: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # its reason says so
        return []
