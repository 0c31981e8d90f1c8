"""Which submissions a person should look at, and why."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from grading import report
from grading.report import Graded

# What answers have no use for: the grader's own names, and ways into a process's other modules.
INTERNALS = re.compile(
    r"\b(__ask__|_only|_link|_getframe|settrace|setprofile|__globals__|__subclasses__|__closure__"
    r"|f_back|f_globals|f_locals|gc\.get_\w+|sys\.modules|ctypes|grading\.\w+|linecache"
    r"|common\.(?:checks|oracles|remote|ranks\.\w+)|globals\(\)|importlib|os\._exit|/proc)"
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
        return all(re.fullmatch(r"[\d.]+ h late", reason) for reason in self.reasons)


def at(graded: Iterable[Graded]) -> list[Look]:
    """The submissions to look at, with all reasons."""
    graded = list(graded)
    names = {one.lab.name[:2]: one.lab.name for one in graded}
    known = {(student, names[lab]): reason for student, lab, reason in report.to_look_at(graded)}
    looks = []
    for one in graded:
        key = one.submission.student, one.lab.name
        reasons = (*filter(None, [known.get(key, "")]), *_reasons(one))
        if reasons:
            looks.append(Look(*key, reasons))
    return looks


def _reasons(one: Graded) -> Iterable[str]:
    for name, answer in (one.answers or {}).items():
        if not answer.text or not answer.attempted:
            continue
        text = "\n".join([*answer.needed, answer.text])
        if words := sorted(set(INTERNALS.findall(text)) - _ours(one, name)):
            yield f"{name} names {', '.join(words[:4])}"
        if len(text) > LONG_CHARACTERS:
            yield f"{name} has {len(text):,} characters"
    if (seconds := sum(result.seconds for result in one.results)) > SLOW_S:
        yield f"its checks took {seconds:.0f} s"
    if (restarts := sum(result.restarts for result in one.results)) >= MANY_RESTARTS:
        yield f"its process ended {restarts} times"


def _ours(one: Graded, name: str) -> set[str]:
    """What the stub itself names."""
    return set(INTERNALS.findall(one.lab.exercise(name).stub))
