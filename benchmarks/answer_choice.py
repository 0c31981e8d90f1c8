"""Which known right answers stay: what a check once refused, what adds a feature, other styles."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.answer_features import Features, Known, own, shared

LEAST = 10  # answers per lab
FEWEST = 3  # answers per exercise
STYLES = 5  # answers per exercise up to which some stay for their style alone
UNLIKE = 0.6  # the share of two styles' parts that only one of them has, from which they differ
REFUSED, UNMEASURED = "a check once refused it", "it was not measured"


@dataclass
class Choice:
    """Of one exercise: the answers that are known, those that stay, and why."""

    exercise: str
    solution: Known
    known: list[Known]
    kept: list[Known] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)  # by title

    @property
    def gone(self) -> list[Known]:
        return [each for each in self.known if each not in self.kept]

    def keep(self, answer: Known, why: str) -> None:
        if answer not in self.kept:
            self.kept.append(answer)
            self.why[answer.title] = why


def choose(choices: Sequence[Choice], refused: Collection[str]) -> None:
    """Fills `kept` and `why`: what must stay, cheap answers that add something, styles."""
    everything = [each for choice in choices for each in choice.known]
    for choice in choices:
        for each in choice.known:
            if each.title in refused:
                choice.keep(each, REFUSED)
            elif not each.features:
                choice.keep(each, UNMEASURED)
        for each in cover(choice.known, choice.kept, choice.solution.features, own):
            choice.keep(each, "its own check")
    kept = [each for choice in choices for each in choice.kept]
    solutions = union([choice.solution for choice in choices])
    added = cover(everything, kept, solutions, shared)
    for choice in choices:
        for each in added:
            if each in choice.known:
                choice.keep(each, "the lab's arcs and operations")
        _drop_covered(choice, choices)
        _keep_styles(choice)
    for each in sorted(everything, key=lambda each: each.lines):
        choice = next(choice for choice in choices if each in choice.known)
        if sum(len(choice.kept) for choice in choices) < LEAST and each in choice.gone:
            choice.keep(each, "a lab has ten")


def cover(
    known: Sequence[Known],
    kept: Sequence[Known],
    covered: Features,
    of: Callable[[Features], Features],
) -> list[Known]:
    """Cheap answers that together with those that are kept have all features of this sort."""
    parts = {each.title: of(each.features) - covered for each in known}
    missing = frozenset().union(*parts.values()) - of(union(kept))
    picked: list[Known] = []
    while missing:
        best = max(known, key=lambda each: len(parts[each.title] & missing) / (each.lines + 5))
        picked.append(best)
        missing -= parts[best.title]
    return picked


def _drop_covered(choice: Choice, choices: Sequence[Choice]) -> None:
    """Drops answers, the longest first, whose features the later ones have, too."""
    everywhere = union([each.solution for each in choices])
    for each in sorted(choice.kept, key=lambda each: -each.lines):
        others = [other for other in choice.kept if other is not each]
        rest = [k for one in choices for k in one.kept if k is not each]
        if (
            choice.why[each.title] not in (REFUSED, UNMEASURED)
            and own(each.features) <= choice.solution.features | union(others)
            and shared(each.features) <= everywhere | union(rest)
        ):
            choice.kept.remove(each)


def _keep_styles(choice: Choice) -> None:
    """Adds answers unlike all that are kept, the most different one first."""
    while choice.gone and len(choice.kept) < STYLES:
        styles = [each.style for each in [choice.solution, *choice.kept]]
        apart = {
            each.title: min(_distance(each.style, style) for style in styles)
            for each in choice.gone
        }
        best = max(choice.gone, key=lambda each: (apart[each.title], -each.lines))
        if apart[best.title] < UNLIKE and len(choice.kept) >= FEWEST:
            return
        choice.keep(best, f"its style, {apart[best.title]:.2f} from the nearest")


def _distance(one: Features, other: Features) -> float:
    return 1 - len(one & other) / max(1, len(one | other))


def union(known: Iterable[Known]) -> Features:
    return frozenset().union(*(each.features for each in known))
