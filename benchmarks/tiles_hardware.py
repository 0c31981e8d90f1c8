"""What the warps of compiled Triton kernels request: tiles.count and a GPU's counters.

    python benchmarks/tiles_hardware.py [--output FILE.md] [--raw FILE.json] [--keep FOLDER]

needs an NVIDIA GPU and Nsight Compute's `ncu` with access to the counters. It launches each kernel
of benchmarks/tiles_kernels.py once under ncu, counts the same launch from its PTX, and writes the
table kernel, counter, ours, hardware, result. A kernel that fails gets a row that says so. --raw:
all figures, by line of each kernel. --keep: a folder for PTX and machine code, as they ran.
It ends with an error if two figures differ and WHY does not say why.
"""

import argparse
import base64
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch

from common.hardware import device
from common.hardware import ncu as nsight
from common.hardware.ncu import L1
from common.hardware.ncu import TILES as COUNTERS

METRICS = [metric for _, metrics in COUNTERS.values() for metric in metrics]
OTHERS = [  # kept with --raw, to explain a difference
    *(
        L1.format(unit, f"ldgsts_cache_{way}")
        for unit in ("requests", "sectors")
        for way in ("access", "bypass")
    ),
    *(
        f"smsp__sass_inst_executed_op_{operation}.sum"
        for operation in (
            *("global_ld", "global_st", "global_red", "global_atom", "local_ld", "local_st"),
            *("ldsm", "shared_ld", "shared_st"),
        )
    ),
    *(
        f"lts__t_{unit}_srcunit_tex_op_{operation}.sum"
        for unit in ("requests", "sectors")
        for operation in ("read", "write", "red", "atom")
    ),
    "l1tex__t_set_accesses_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_set_accesses_pipe_lsu_mem_global_op_red.sum",
]
ONCE = "neighbours in a thread have one address; the PTX loads it for each, the assembler once"
WHY = {  # (kernel, counter): why the figures differ
    (kernel, f"load {unit}"): ONCE
    for kernel in ("embedding, rows of 96, bf16", "one number for all")
    for unit in ("requests", "sectors")
} | {
    ("lab 10, int4_matvec_kernel", "load sectors"): (
        "Triton 3.7 places a load's elements otherwise than 3.6, which the GPU ran: then it is 544"
    )
}


def ncu() -> str:
    """Where Nsight Compute's command line is."""
    return nsight.tool() or sys.exit(
        "Nsight Compute's ncu is not on the path; it comes with the CUDA toolkit"
    )


def known(tool: str) -> list[str]:
    """All METRICS, and those of the OTHERS that this ncu knows for this GPU."""
    asked = [tool, "--query-metrics"]
    listed = subprocess.run(asked, capture_output=True, text=True).stdout
    names = set(re.findall(r"^\s*(\w+)", listed, flags=re.MULTILINE))
    return METRICS + [metric for metric in OTHERS if metric.split(".")[0] in names]


# The process that ncu watches


def on_gpu(thing: Any) -> Any:
    """A tensor's copy on the GPU, with its place in its storage: that decides its alignment."""
    if not torch.is_tensor(thing):
        return thing
    storage: Any = thing.untyped_storage().cuda()
    empty = torch.empty(0, dtype=thing.dtype, device="cuda")
    return empty.set_(storage, thing.storage_offset(), thing.size(), thing.stride())


def launch_on_the_gpu(first: int, records: Path, keep: Path | None) -> None:
    """Launches from number first on, once each while ncu counts.

    records: the file for a line of JSON on how each went.
    """
    from benchmarks import tiles_kernels

    for number, launch in enumerate(tiles_kernels.launches()):
        if number < first:
            continue
        record: dict[str, Any] = {"number": number, "name": launch.name}
        try:
            record |= _launch(launch, number, keep)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"[:500]
        with records.open("a") as file:
            file.write(json.dumps(record) + "\n")
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            sys.exit(3)  # this process can launch no more: the next one goes on


def _launch(launch: Any, number: int, keep: Path | None) -> dict[str, Any]:
    def run(given: list[Any]) -> Any:
        compiled = launch.kernel[launch.grid](*given, **launch.constants)
        torch.cuda.synchronize()
        return compiled

    compiled = run([on_gpu(each) for each in launch.arguments])  # and it compiles
    given = [on_gpu(each) for each in launch.arguments]
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        run(given)
    finally:
        torch.cuda.profiler.stop()
    if keep:
        kept = {name: compiled.asm[name] for name in ("ptx", "ttgir")}
        kept["cubin"] = base64.b64encode(compiled.asm["cubin"]).decode()
        (keep / f"{number}.json").write_text(json.dumps({"name": launch.name} | kept))
    return {"kernel": compiled.metadata.name, "shared_bytes": compiled.metadata.shared}


def measured(count: int, keep: Path | None) -> list[dict[str, Any]]:
    """What ncu says about each launch: {"metrics": {name: value}}, or {"error": why not}."""
    tool = ncu()
    metrics = known(tool)
    results: list[dict[str, Any]] = []
    while len(results) < count:
        done = _profiled(tool, metrics, len(results), keep)
        if len(results) + len(done) < count:  # the process ended: at the launch after those, or it
            print(f"ncu's process ended after launch {len(results) + len(done)}", file=sys.stderr)
        if not done:
            done = [{"error": "the process ended at this launch"}]
        results += done
    return results


def _profiled(tool: str, metrics: list[str], first: int, keep: Path | None) -> list[dict[str, Any]]:
    """The same for the launches from number first on, as far as one process comes."""
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records"
        records.touch()
        program = [sys.executable, __file__, "--launch", str(records), "--first", str(first)]
        program += ["--keep", str(keep)] if keep else []
        text, printed, _ = nsight.profiled(tool, metrics, program, os.environ)
        lines = [json.loads(line) for line in records.read_text().splitlines()]
    unknown = "\n".join(re.findall("find metric.*", printed + text))
    if missing := [metric for metric in metrics if metric.split(".")[0] in unknown]:
        print(f"this ncu does not know {', '.join(missing)}", file=sys.stderr)
        left = [metric for metric in metrics if metric not in missing]
        return _profiled(tool, left, first, keep)
    profiled = parsed(text)
    launched = [line for line in lines if "error" not in line]
    if not lines or len(profiled) < len(launched):
        print(printed[-3000:], text[-1500:], file=sys.stderr)
    if "ERR_NVGPUCTRPERM" in text + printed:
        sys.exit(nsight.FORBIDDEN)
    for line, (kernel, values) in zip(launched, profiled, strict=False):
        if kernel.startswith(line["kernel"]):
            line["metrics"] = values
        else:
            line["error"] = f"ncu shows {kernel} instead"
    return [
        line if "metrics" in line else {"error": "ncu shows no figures"} | line for line in lines
    ]


def parsed(text: str) -> list[tuple[str, dict[str, float]]]:
    """[(kernel, {metric: value})] in the order of the launches, from ncu's CSV."""
    return nsight.parsed(text, METRICS + OTHERS)


# Ours, and the table


def counted(launch: Any, capability: int) -> dict[str, Any]:
    """{"figures": {counter: figure}, "lines": ...} of a launch; or {"refused" or "error": why}."""
    from nogpu import tiles

    given = [each.clone() if torch.is_tensor(each) else each for each in launch.arguments]
    for number, each in enumerate(launch.arguments):  # a clone begins where its storage does
        if torch.is_tensor(each) and each.storage_offset():
            given[number] = each
    constants = launch.constants | {"capability": capability}
    try:
        warps = tiles.count(launch.kernel, launch.grid, *given, seed=0, **constants).compiled
    except tiles.KernelError as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    figures = {
        name: sum(operator.attrgetter(path)(warps) for path in paths)
        for name, (paths, _) in COUNTERS.items()
    }
    return {"figures": figures, "lines": warps.as_dict()["accesses"]}


def rows(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of one kernel: its name, a counter, ours, the hardware's, and the result."""
    for who, each in (("ours", ours), ("GPU", theirs)):
        for what in ("error", "refused"):
            if what in each:
                why = " ".join(each[what].split()).replace("|", "/")
                shown = f"refused: {why}" if what == "refused" else f"FAILED, {who}: {why}"
                return [(name, "", "", "", shown)]
    found: list[tuple[str, ...]] = []
    for counter, (_, metrics) in COUNTERS.items():
        figure, value = ours["figures"][counter], nsight.added(theirs["metrics"], metrics)
        if not figure and not value:
            continue
        if value is None:
            result, shown = "not measured", ""
        else:
            result, shown = "equal", f"{value:,}"
            if value != figure:
                off = f"{figure / value - 1:+.1%}" if value else f"{figure:+,}"
                result = f"{off}: {WHY.get((name, counter), 'NOT EXPLAINED')}"
        found.append((name, counter, f"{figure:,}", shown, result))
    return found


def report(lines: list[tuple[str, ...]], gpu: str, version: str) -> str:
    """The table as Markdown, with its title and a summary. version: of Triton on the GPU."""
    kernels, results = {line[0] for line in lines}, [line[4] for line in lines]
    same = {
        name for name in kernels if all(line[4] == "equal" for line in lines if line[0] == name)
    }
    summary = (
        f"Of {len(kernels)} kernels, {len(same)} have every figure equal. Of {len(results)} "
        f"figures, {results.count('equal')} are equal, and "
        f"{sum('NOT EXPLAINED' in result for result in results)} differ without an explanation."
    )
    made = (
        f"Made by `python benchmarks/tiles_hardware.py`; Triton {version} compiled for the GPU, "
        f"and we counted what Triton {_version()} compiles."
    )
    table = ["| kernel | counter | ours | hardware | result |", "| --- | --- | ---: | ---: | --- |"]
    table += ["| " + " | ".join(line) + " |" for line in lines]
    title = f"# Requests of compiled Triton kernels: our counts and those of an {gpu}"
    return "\n".join([title, "", f"{made} {summary}", "", *table, ""])


def _version() -> str:
    import triton

    return triton.__version__


def compare(output: Path, raw: Path, keep: Path | None, hardware: Path | None) -> int:
    """Write the table and the raw figures. Returns how many differences nothing explains.

    hardware: the raw figures of an earlier run, whose counters of the GPU are taken.
    """
    from benchmarks import tiles_kernels

    started = time.monotonic()
    launches = list(tiles_kernels.launches())
    with ThreadPoolExecutor(1) as pool:
        if hardware:
            before = json.loads(hardware.read_text(encoding="utf-8"))
            gpu, capability, version = (before[name] for name in ("gpu", "capability", "triton"))
            found = {each["name"]: each["hardware"] for each in before["launches"]}
            measuring = pool.submit(lambda: [found[launch.name] for launch in launches])
        else:
            gpu, (major, minor), version = device.name(), device.compute_capability(), _version()
            capability = 10 * major + minor
            measuring = pool.submit(measured, len(launches), keep)
        ours = [counted(launch, capability) for launch in launches]
        print(f"counted after {time.monotonic() - started:.0f} s", file=sys.stderr)
        theirs = measuring.result()
    print(f"measured after {time.monotonic() - started:.0f} s", file=sys.stderr)
    both = [
        {"name": launch.name, "ours": our, "hardware": their}
        for launch, our, their in zip(launches, ours, theirs, strict=True)
    ]
    raw.parent.mkdir(parents=True, exist_ok=True)
    whole = {"gpu": gpu, "capability": capability, "triton": version, "launches": both}
    raw.write_text(json.dumps(whole, indent=1), encoding="utf-8")
    lines = [row for each in both for row in rows(each["name"], each["ours"], each["hardware"])]
    text = report(lines, gpu, version)
    output.write_text(text, encoding="utf-8")
    print(text)
    return sum("NOT EXPLAINED" in line[4] or "FAILED" in line[4] for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--raw", type=Path, default=ROOT / "build" / "tiles_hardware.json")
    parser.add_argument("--keep", type=Path, help="a folder for PTX and machine code, as they ran")
    parser.add_argument("--hardware", type=Path, help="an earlier run's --raw: compare with that")
    parser.add_argument("--launch", type=Path, help="launch the kernels (what ncu watches)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first launch")
    options = parser.parse_args()
    if not device.has_gpu() and not options.hardware:
        sys.exit("this needs an NVIDIA GPU; benchmarks/tiles_hardware.md has an H200's results")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.launch:
        launch_on_the_gpu(options.first, options.launch, options.keep)
        return
    if options.hardware:
        device.prepare_triton()
    sys.exit(compare(options.output, options.raw, options.keep, options.hardware) > 0)


if __name__ == "__main__":
    main()
