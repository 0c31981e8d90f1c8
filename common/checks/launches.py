"""What a check asserts of a launch of a tile kernel, whatever the kernel computes."""

from common.checks import expect
from nogpu.tiles.report import Report


def plain(report: Report) -> None:
    """Asserts that a kernel updates nothing atomically: that loads and stores what no count of
    loads or stores shows."""
    expect(
        not report.atomics.requests,
        f"{report.kernel} makes {report.atomics.requests:,} atomic updates. Each of them loads and "
        "stores; here plain loads and stores will do.",
    )
