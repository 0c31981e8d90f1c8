"""What a class costs in which everybody attacks the grader: python benchmarks/grading_limits.py

Each student hands in something that takes memory, time or room in the results. Printed are the
peak memory of each process, the time, the size of the results and what each student was told.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from rich.console import Console
from rich.markup import escape

from benchmarks.grading_speed import GRADE, hand_in
from common.paths import ROOT
from grading import report
from grading.source import labs

# {what it does: (lab, exercise, answer)}
ANSWERS: Mapping[str, tuple[str, str, str]] = {
    "a rank sends one message for ever": (
        "12",
        "average_gradients",
        """import torch
def average_gradients(dist, parameters, rows):
    while True:
        dist.isend(torch.zeros(24 << 20), (dist.get_rank() + 1) % dist.get_world_size())""",
    ),
    "ranks send large frames at once": (
        "12",
        "average_gradients",
        """import torch
def average_gradients(dist, parameters, rows):
    for parameter in parameters[:3]:
        parameter.data = parameter.grad = torch.ones(30 << 20)""",
    ),
    "ranks gather what all send": (
        "12",
        "average_gradients",
        """import torch
def average_gradients(dist, parameters, rows):
    parts = [torch.empty(4 << 20) for _ in range(dist.get_world_size())]
    while True:
        dist.all_gather(parts, parts[0])""",
    ),
    "references to one long string": (
        "15",
        "partition_layers",
        """def partition_layers(costs, stages):
    one = ["x" * 5_000_000]
    return [one] * 1_000_000""",
    ),
    "an endless list": (
        "15",
        "partition_layers",
        "def partition_layers(costs, stages):\n    return list(range(900_000))",
    ),
    "the largest array": (
        "01",
        "row_major_strides",
        """import numpy as np
def row_major_strides(shape):
    return [np.zeros((16384, 16384), np.uint8) for _ in range(2)]""",
    ),
    "a cell that sleeps, and a loop": (
        "01",
        "row_major_strides",
        """import time
time.sleep(20)
def row_major_strides(shape):
    while True:
        pass""",
    ),
    "a long line that is no Python": (
        "01",
        "sliced",
        "def sliced(*view_and_indices):\n    return 'x" + "y" * 900_000,
    ),
    "an answer of many small functions": (
        "01",
        "sliced",
        "\n".join(f"def f{i}(x):\n    return x * {i} + {i % 7}" for i in range(20_000)),
    ),
    "a long text that it raises": (
        "01",
        "sliced",
        "def sliced(*view_and_indices):\n    raise ValueError('<' * 10**8)",
    ),
}


def _notebook(cells: list[dict[str, object]]) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def _code(text: str) -> dict[str, object]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": text}


def _many_needed() -> str:
    names = [f"a{i}" for i in range(40)]
    data = [_code(f"{name} = '{'x' * 900_000}'") for name in names]
    own = f"def row_major_strides(shape):\n    return [{', '.join(names)}]"
    return _notebook([*data, _code(own)])


def _long_prose() -> str:
    asked = next(cell for cell in labs.read("01").cells if "answer" in cell.tags).source
    text = asked + "\n" + "<&" * 20_000_000
    return _notebook([{"cell_type": "markdown", "metadata": {}, "source": text}])


NOTEBOOKS: Mapping[str, Callable[[], str]] = {  # of lab 01
    "five million statements": lambda: _notebook([_code("x\n" * 5_000_000)]),
    "fifteen cells of half a million statements": lambda: _notebook([_code("x\n" * 499_000)] * 15),
    "seven million empty objects": lambda: '{"": [' + '{"":0},' * 7_000_000 + "{}]}",
    "forty cells that an answer needs": _many_needed,
    "forty megabytes of prose": _long_prose,
}
NAMES = [b"n" * 245, b"Andr\xe9", b"\x1b[2J\x1b]0;pwned\x07", b"=cmd(1)", b".hidden"]


print = Console(highlight=False).print  # noqa: A001


def write_class(folder: Path) -> None:
    """A folder per attack, with one honest student, and names that are attacks."""
    first = labs.read("01")
    for title, (number, exercise, text) in ANSWERS.items():
        lab = labs.read(number)
        answers = {**lab.solution, exercise: text}
        hand_in(lab, answers, folder / title / f"{lab.name}.ipynb")
    for title, make in NOTEBOOKS.items():
        (folder / title).mkdir(parents=True)
        (folder / title / f"{first.name}.ipynb").write_text(make())
    hand_in(first, first.solution, folder / "an honest student" / f"{first.name}.ipynb")
    honest = (folder / "an honest student" / f"{first.name}.ipynb").read_bytes()
    for name in NAMES:
        odd = os.path.join(os.fsencode(folder), name)
        os.mkdir(odd)
        with open(os.path.join(odd, f"{first.name}.ipynb".encode()), "wb") as file:
            file.write(honest)


def peaks(command: list[str], folder: Path) -> dict[str, tuple[int, str]]:
    """{process: (its peak of resident memory, its command)} of a command and its children."""
    found: dict[str, tuple[int, str]] = {}
    with psutil.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                alive = [process, *process.children(recursive=True)]
            except psutil.Error:
                continue
            for one in alive:
                try:
                    status = Path(f"/proc/{one.pid}/status").read_text()
                    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
                    found[str(one.pid)] = int(peak.split()[1]) << 10, _kind(one, process)
                except (psutil.Error, OSError, StopIteration):
                    continue
            time.sleep(0.05)
        if process.returncode:
            raise SystemExit(f"the grader ended with {process.returncode}: see {folder}")
    return found


def _kind(one: psutil.Process, main: psutil.Process) -> str:
    line = " ".join(one.cmdline())
    if one.pid == main.pid:
        return "the main process"
    if "grading.worker.process" in line:
        return "a worker, or its fork server"
    return "a process that grades" if "forkserver" in line else "a process that reads"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        submissions, results = Path(scratch) / "submissions", Path(scratch) / "results"
        write_class(submissions)
        command = [*GRADE, str(submissions), "--out", str(results), "--jobs", str(options.jobs)]
        began_s = time.perf_counter()
        found = peaks([sys.executable, *command[1:], "--similar"], results)
        took_s = time.perf_counter() - began_s
        for kind in sorted({kind for _, kind in found.values()}):
            most = max(peak for peak, of in found.values() if of == kind)
            print(f"{kind}: at most {most / 1e9:.2f} GB")
        told: dict[str, str] = {}
        for row in report.read(results):
            if row["status"] not in ("passed", "not attempted", "missing"):
                told.setdefault(row["student"], f"{row['status']}: {row['message'][:150]}")
        for student, text in told.items():
            print(f"{escape(student[:45])}: {escape(text)}", soft_wrap=True)
        for path in sorted(results.rglob("*")):
            if path.is_file() and path.stat().st_size > 500_000:
                print(f"{path.relative_to(results)}: {path.stat().st_size / 1e6:.1f} MB")
        size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
        print(f"results: {size / 1e6:.1f} MB; the whole command took {took_s:.0f} s")


if __name__ == "__main__":
    main()
