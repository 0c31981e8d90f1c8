"""Kernels and functions that run in another process, as a grader's sandbox."""

from typing import Any, Literal, Protocol, runtime_checkable


@runtime_checkable
class CountedRemotely(Protocol):
    """What a check of the grader gets in place of a student's kernel or function.

    simt.count, tiles.count and ranks.run must not run a student's code in the grader's process.
    Given one of these, they call count_remotely, which runs them in a worker process.
    """

    def count_remotely(
        self, package: Literal["simt", "tiles", "ranks"], /, *args: Any, **options: Any
    ) -> Any:
        """What this package's function gives for these arguments and options.

        A report as data (see Report.from_dict) of simt and tiles, a Result of ranks.
        """
