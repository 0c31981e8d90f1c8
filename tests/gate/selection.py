"""The rule: what `make test` runs of the tests that have a subject."""

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.gate.subjects import Subject

MANY = 8  # labs; if the answers of more depend on a change, a part of each lab's runs
PART = 3  # one of so many

Reason = Literal["fast", "new", "changed", "drawn", "known", "left out"]
RUN: frozenset[Reason] = frozenset({"fast", "new", "changed", "drawn"})


@dataclass(frozen=True)
class Case:
    """A test, as the rule sees it.

    lot: what is drawn as a whole, a test or all cells of a notebook. group: the lots of which
    `draws` are drawn if they are neither known nor changed.
    """

    subject: Subject | None
    verdict: str = ""
    lot: str = ""
    group: str = ""
    draws: int = 0


@dataclass(frozen=True)
class Plan:
    """What decides which tests run. changed: files. known: verdicts.

    seed: of what is drawn. None: nothing is drawn, and all runs that is not known.
    """

    changed: frozenset[str]
    known: frozenset[str]
    seed: str | None

    def reasons(self, cases: Sequence[Case]) -> list[Reason]:
        """Why each test runs, or why it does not."""
        unknown = {case.lot for case in cases if case.verdict not in self.known}
        changed = self._of_a_change([case for case in cases if case.lot in unknown])
        drawn = self._drawn([case for case in cases if case.lot in unknown - changed])

        def reason(case: Case) -> Reason:
            if case.subject is None:
                return "fast"
            if case.lot not in unknown:
                return "known"
            if self.seed is None:
                return "new"
            if case.lot in changed:
                return "changed"
            return "drawn" if case.lot in drawn else "left out"

        return [reason(case) for case in cases]

    def _of_a_change(self, cases: Collection[Case]) -> set[str]:
        """The lots that run because of a change.

        What many labs stand on, the grader for example, is not about one answer: a mistake in it
        shows in many. So a part of them is enough here, and `make test-all` runs the others.
        """
        changed = [case for case in cases if case.subject and case.subject.changed(self.changed)]
        answers: dict[str, set[str]] = {}  # lots by lab
        for case in changed:
            if case.subject and case.subject.answers:
                answers.setdefault(case.subject.name, set()).add(case.lot)
        lots = {case.lot for case in changed}
        if self.seed is None or len(answers) <= MANY:
            return lots
        for lab, all_lots in answers.items():
            lots -= all_lots - self._sample(lab, all_lots, -(-len(all_lots) // PART))
        return lots

    def _drawn(self, cases: Collection[Case]) -> set[str]:
        """The lots that are drawn, by group."""
        groups: dict[tuple[str, int], set[str]] = {}
        for case in cases:
            groups.setdefault((case.group, case.draws), set()).add(case.lot)
        drawn: set[str] = set()
        for (group, draws), lots in groups.items():
            drawn |= self._sample(group, lots, min(draws, len(lots)))
        return drawn

    def _sample(self, group: str, lots: Collection[str], count: int) -> set[str]:
        """So many of these lots: with the same seed the same ones, in every process."""
        generator = random.Random(f"{self.seed} {group}")  # noqa: S311  (it keeps no secret)
        return set(generator.sample(sorted(lots), count))


SAYS: dict[Reason, str] = {
    "fast": "fast, and always run.",
    "new": "new, because this text has not passed before.",
    "changed": "run because of a change: {changed}.",
    "drawn": "drawn by the commit from what has not changed.",
    "known": "not run again, because the same text passed before.",
    "left out": "left to another commit's draw and to `make test-all`.",
}


def account(cases: Sequence[Case], reasons: Sequence[Reason]) -> list[str]:
    """What a run does and why, in sentences."""
    counts = Counter(reasons)
    changed = {
        case.subject.name
        for case, reason in zip(cases, reasons, strict=True)
        if case.subject and reason == "changed"
    }
    return [
        f"{counts[reason]} test{' is' if counts[reason] == 1 else 's are'} "
        f"{text.format(changed=_some(sorted(changed)))}"
        for reason, text in SAYS.items()
        if counts[reason]
    ]


def _some(names: Sequence[str]) -> str:
    """The first few of these names."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{', '.join(names[:8])}{more}"
