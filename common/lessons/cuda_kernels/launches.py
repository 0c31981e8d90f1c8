"""What a check asserts of a launch: its result, no race, and no more than par of each count."""

import operator
from typing import Any

import numpy as np

from common.checks import agree, expect
from common.figures import memory_drawings
from nogpu.simt.occupancy import SMS as SMS  # the lab imports it from here
from nogpu.simt.report import Report

NEVER_STORED = (
    "Where NaN stands, nothing was stored, or something was added to what stood there before."
)


def blocks_of(size: int, *lengths: int) -> tuple[int, ...]:
    """How many blocks of this size cover each of these lengths."""
    return tuple(-(-length // size) for length in lengths)


def result(got: Any, want: Any, case: str, **options: Any) -> None:
    """Asserts that a kernel stored what was wanted; otherwise draws both. options: of agree."""
    if got.dtype.kind == "f" and np.isnan(got).any():
        options["mistakes"] = {**options.get("mistakes", {}), NEVER_STORED: got}
    agree(got, want, case, draw=lambda: memory_drawings.compare(got, want, title=case), **options)


def clean(report: Report, atomics: bool = False) -> Report:
    """The report. Asserts that no two threads raced, that none read what nothing had written, that
    the launch changed one array at most, and that it updated nothing atomically, unless `atomics`.

    Of a race, it draws which thread accessed which element, in both lines.
    """
    problems = [*report.races, *report.unwritten]
    lines = report.races[0].lines if report.races else ()
    expect(
        not problems,
        f"{report.kernel}: {problems[0] if problems else ''}",
        draw=lambda: _draw(report, *dict.fromkeys(lines), whole_block=True),
    )
    expect(
        report.changed_arrays <= 1,
        f"{report.kernel} changes {report.changed_arrays} of its arrays. Store into the result "
        "only: the caller still needs the others.",
    )
    expect(
        atomics or not report.atomics,
        f"{report.kernel} makes {report.atomics:,} atomic updates. Each of them loads and stores, "
        "and no two threads share an element here: a plain load and a plain store will do.",
    )
    return report


def par(report: Report, count: str, most: float, why: str) -> None:
    """Asserts that a launch took at most par of a count; otherwise draws the line that took most.

    count: an attribute of the report, such as "steps" or "global_loads.sectors". why: what to do.
    """
    got = operator.attrgetter(count)(report)
    name = " of ".join(reversed(count.replace("_", " ").split(".")))
    name += " of the busiest warp" * (count == "steps")
    expect(
        got <= most,
        f"{report.kernel} took {got:,} {name}; par is {most:,}. {why}",
        draw=lambda: _draw(report, *_costliest(report, count)),
    )


def _costliest(report: Report, count: str) -> list[int]:
    """The number of the line that took most of a count; none if lines do not have it."""
    if "." not in count and count != "divergent_branches":
        return []
    return [max(report.lines, key=operator.attrgetter(count)).number]


def _draw(report: Report, *lines: int, whole_block: bool = False) -> None:
    """Draws those of these lines that access memory in the traced block."""
    if report.trace is None or report.program is None:
        return
    accessed = {report.program.sites[number].line for number in set(report.trace.site.tolist())}
    for line in lines:
        if line in accessed:
            report.draw(line, whole_block=whole_block)
