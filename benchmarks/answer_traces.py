"""What one answer makes the checking side do, recorded in the worker that runs its checks.

`install` runs before the lab's cells, `record` after them. Recorded are the branches of the
checks, of common/ and of grading/ that are executed, the notes of noted_calls, what kernels and
ranks are counted to do, and how much of a tolerance the numbers use.
"""

import random
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from coverage import Coverage

from benchmarks.noted_calls import NOTES, noting
from common import checks
from common.checks import assertions
from common.paths import ROOT
from nogpu.ranks import simulated
from nogpu.ranks.trace import Trace
from nogpu.simt.kernel import Kernel
from nogpu.tiles import kernel as tiles_kernel
from tests import in_one_process

CELLS = (  # in a worker: before the lab's cells, and after them
    """
from benchmarks.answer_traces import install as __install__
from benchmarks.noted_calls import came as __came__, left as __left__
__install__()
""",
    """
def __record__(*arguments):
    from benchmarks.answer_traces import record
    return record(globals(), *arguments)
""",
)
CHECKS = "/checks"  # the folder in which the texts of checks seem to be
TOTALS: defaultdict[str, float] = defaultdict(float)  # counts of all launches and runs


def name_of(check: str) -> str:
    """The name of the file in which the text of a check seems to be."""
    return f"{CHECKS}/{zlib.crc32(check.encode())}.py"


def install() -> None:
    """From now on, this worker's cells note their calls, and its checks have names of files."""
    frame = sys._getframe()
    while "WorkerServer" not in frame.f_globals:  # the module is also __main__, a second time
        frame = frame.f_back or frame
    frame.f_globals["compile"] = _compiled
    vars(in_one_process)["compile"] = lambda text, _, mode: compile(text, name_of(text), mode)
    Kernel.count = _counting(Kernel.count, _simt_counts)
    vars(tiles_kernel)["count"] = _counting(tiles_kernel.count, _tiles_counts)
    vars(simulated)["run"] = _counting(simulated.run, _rank_counts)
    for name in ("_array_difference", "_number_difference"):
        measuring = _measuring(vars(assertions)[name])
        vars(assertions)[name] = vars(checks)[name] = measuring


def record(names: dict[str, Any], rounds: in_one_process.Checks, most_s: float) -> dict[str, Any]:
    """Runs the checks; gives what they raised, and all that was recorded meanwhile."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (answers may draw from it)
    torch.manual_seed(0)
    include = [f"{ROOT}/common/*", f"{ROOT}/grading/*", f"{CHECKS}/*"]
    coverage = Coverage(
        data_file=None,
        config_file=False,
        branch=True,
        include=include,
        concurrency=["thread", "greenlet"],
        messages=False,
    )
    coverage.start()
    try:
        raised = _raised(names, rounds, most_s)
    finally:
        coverage.stop()
    data = coverage.get_data()
    return {
        "raised": raised,
        "arcs": {
            file.removeprefix(f"{ROOT}/"): [line for arc in data.arcs(file) or () for line in arc]
            for file in data.measured_files()
        },
        "kinds": sorted(NOTES.kinds),
        "values": {name: list(map(tuple, values)) for name, values in NOTES.values.items()},
        "totals": dict(TOTALS),
    }


def _raised(
    names: dict[str, Any], rounds: in_one_process.Checks, most_s: float
) -> list[str | None]:
    """What the checks raised, round by round; none begins after most_s processor seconds."""
    raised: list[str | None] = []
    end_s = time.process_time() + most_s
    for number in range(len(rounds[0][1])):
        if number and time.process_time() > end_s:
            break
        this = [(text, [seeds[number]]) for text, seeds in rounds]
        raised += in_one_process.problems(names, this)
    return raised


def _compiled(source: str, filename: str, mode: str, flags: int = 0) -> Any:
    """Python's compile, for a worker's cells."""
    ours = filename.startswith(("<setup", "<record"))
    tree = source if ours else noting(source, filename)
    return compile(tree, filename, mode, flags=flags)


def _counting(function: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        note(result)
        return result

    return call


def _simt_counts(report: Any) -> None:
    _add("simt", {each.name: getattr(report, each.name) for each in fields(report)})


def _tiles_counts(report: Any) -> None:
    spaces = {name: getattr(report, name) for name in ("loads", "stores", "atomics", "busiest")}
    numbers = {name: getattr(report, name) for name in ("conversions", "selects", "largest_tile")}
    _add("tiles", spaces | numbers)
    for dots in report.dots_by_line:
        _add("tiles.dots", {"calls": dots.calls, "flops": dots.flops})
        NOTES.kinds.update(f"dot {kind}" for kind in [*dots.formats, *dots.precisions])


def _rank_counts(result: tuple[list[Any], Trace]) -> None:
    trace = result[1]
    peak = sum(trace.peak_live_bytes)
    calls = {"messages": len(trace.messages), "collectives": len(trace.collectives)}
    _add("ranks", calls | {"bytes": trace.bytes, "rounds": trace.rounds, "peak_bytes": peak})
    for rank in range(trace.world_size):
        sequence: list[str] = []
        for name in [call.name for call in trace.calls(rank)]:
            if sequence[-1:] != [name]:
                sequence.append(name)
        NOTES.kinds.add(f"a rank calls {', '.join(sequence[:8])}")
    NOTES.kinds.update(f"a message of {message.what}" for message in trace.messages)


def _add(place: str, counts: Mapping[str, Any]) -> None:
    """Adds the numbers among these counts, and those within them, to the totals."""
    for name, count in counts.items():
        if is_dataclass(count):
            inner = {each.name: getattr(count, each.name) for each in fields(count)}
            _add(f"{place}.{name}", inner)
        elif isinstance(count, (int, float)) and name != "seed":
            TOTALS[f"{place}.{name}"] += count


def _measuring(difference: Callable[..., str | None]) -> Callable[..., str | None]:
    """The same comparison, which notes the largest share of a tolerance that was used."""

    def call(got: Any, want: Any, rtol: float, atol: float) -> str | None:
        answer = difference(got, want, rtol, atol)
        if answer is None and (rtol or atol):
            key = "tolerance used, in steps of a tenth"
            TOTALS[key] = max(TOTALS[key], _share(got, want, rtol, atol))
        return answer

    return call


def _share(got: Any, want: Any, rtol: float, atol: float) -> float:
    ours, theirs = (np.asarray(_plain(x), dtype=complex) for x in (got, want))
    with np.errstate(all="ignore"):
        shares = abs(ours - theirs) / (atol + rtol * abs(theirs))
    shares = shares[np.isfinite(shares)]
    return float(np.ceil(10 * shares.max()) / 10) if shares.size else 0.0


def _plain(value: Any) -> Any:
    return assertions._float_array(value) if assertions._is_array(value) else value
