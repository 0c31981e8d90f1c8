"""Nsight Compute: what a GPU's own counters say of the launches of a process."""

import csv
import math
import shutil
import subprocess
import tempfile
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
LDGSTS = "smsp__sass_inst_executed_op_ldgsts_cache_{}.sum"
ATOMICS = "red", "atom"
Counters = Mapping[str, tuple[Sequence[str], Sequence[str]]]

# name: (what is added up of a simt.Report; what of Nsight Compute's metrics).
SIMT: Counters = {
    "global load requests": (["global_loads.requests"], [L1.format("requests", "ld")]),
    "global load sectors": (["global_loads.sectors"], [L1.format("sectors", "ld")]),
    "global store requests": (["global_stores.requests"], [L1.format("requests", "st")]),
    "global store sectors": (["global_stores.sectors"], [L1.format("sectors", "st")]),
    "shared load requests": (["shared_loads.requests"], ["smsp__inst_executed_op_shared_ld.sum"]),
    "shared load wavefronts": (["shared_loads.wavefronts"], [SHARED.format("ld")]),
    "shared store requests": (["shared_stores.requests"], ["smsp__inst_executed_op_shared_st.sum"]),
    "shared store wavefronts": (["shared_stores.wavefronts"], [SHARED.format("st")]),
    "global atomic requests": (
        ["global_atomics.requests"],
        [L1.format("requests", op) for op in ATOMICS],
    ),
}
# The same of a tiles.Warps. The GPU counts cp.async among its loads. A cp.async all of whose lanes
# are masked off is an instruction, but no request.
TILES: Counters = {
    f"{kind} {unit}": ([f"{name}.{unit}" for name in names], [L1.format(unit, op) for op in ops])
    for kind, names, ops in (
        ("load", ("loads", "copies"), ("ld",)),
        ("store", ("stores",), ("st",)),
        ("atomic", ("atomics",), ATOMICS),
    )
    for unit in ("requests", "sectors")
} | {
    "cp.async instructions": (
        ["copies.requests", "copies.empty"],
        [LDGSTS.format(way) for way in ("access", "bypass")],
    )
}
FORBIDDEN = "ncu may not read the counters here: they are for administrators alone"


def tool() -> str | None:
    """Where Nsight Compute's command line is, or None."""
    folders = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    places = ("ncu", *map(str, folders), "/usr/local/cuda/bin/ncu")
    return next(filter(None, map(shutil.which, places)), None)


def profiled(
    ncu: str, metrics: Sequence[str], program: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, str, int]:
    """(the CSV that ncu writes, all else that is printed, the exit status) of a program.

    The program starts and stops the counting by torch.cuda.profiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            *(ncu, "--profile-from-start", "off", "--clock-control", "none", "--csv"),
            *("--cache-control", "none", "--print-units", "base", "--metrics", ",".join(metrics)),
            *("--log-file", str(log), *program),
        ]
        child = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
    return text, child.stdout + child.stderr, child.returncode


def parsed(text: str, metrics: Container[str]) -> list[tuple[str, dict[str, float]]]:
    """[(kernel, {metric: value})] in the order of the launches, from ncu's CSV.

    It has one row per metric, or one column per metric.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    kernels: dict[int, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(lines):
        if not row["ID"].isdigit():  # the row of units, in the wide form
            continue
        _, values = kernels.setdefault(int(row["ID"]), (row["Kernel Name"], {}))
        pairs = [(row["Metric Name"], row["Metric Value"])] if "Metric Name" in row else row.items()
        values |= {name: _number(value) for name, value in pairs if name in metrics}
    return [kernels[key] for key in sorted(kernels)]


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # n/a
        return math.nan


def added(values: Mapping[str, float], names: Sequence[str]) -> int | None:
    """The sum of what was measured under these names; None if ncu measured none of them."""
    found = [values[name] for name in names if not math.isnan(values.get(name, math.nan))]
    return int(sum(found)) if found else None
