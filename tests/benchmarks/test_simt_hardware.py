"""benchmarks/simt_hardware.py without a GPU: its kernels run, and ncu's text is read."""

import csv
import inspect
import io

import numba
import pytest
from numba import cuda as numba_cuda

from benchmarks import simt_hardware


@pytest.fixture(scope="module")
def benchmark():
    return simt_hardware


@pytest.fixture(scope="module")
def figures(benchmark):
    return benchmark.simulated()


def written(benchmark, figures, wide):
    """What ncu would write if the hardware's counters were these."""
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL)
    text.write("==PROF== Connected to process 1\n")
    rows.writerow(
        ["ID", "Kernel Name", *benchmark.METRICS]
        if wide
        else ["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
    )
    if wide:
        rows.writerow([""] * (2 + len(benchmark.METRICS)))
    for number, (name, counted) in enumerate(figures):
        values = {
            metric: f"{figure:,}" if metric == metrics[0] else "0"
            for figure, (_, metrics) in zip(
                counted.values(), benchmark.COUNTERS.values(), strict=True
            )
            for metric in metrics
        }
        rows.writerows(
            [[number, name, *values.values()]]
            if wide
            else [[number, name, metric, "", value] for metric, value in values.items()]
        )
    return text.getvalue()


@pytest.mark.slow
def test_the_table_of_hardware_and_simulator(benchmark, figures, monkeypatch):
    for wide in (False, True):
        monkeypatch.setattr(
            benchmark,
            "_profile",
            lambda metrics, wide=wide: (written(benchmark, figures, wide), ""),
        )
        lines, unexplained = benchmark.table(figures, benchmark.measured(len(figures)))
        assert unexplained == 0 and all(line.endswith("| equal |") for line in lines[2:])
    other = [{counter: figure + 1 for counter, figure in counted.items()} for _, counted in figures]
    lines, unexplained = benchmark.table(figures, other)
    assert "NOT EXPLAINED" in lines[2] and unexplained > len(figures)


def test_a_counter_that_ncu_does_not_know_is_left_out(benchmark, figures, monkeypatch):
    figures = figures[:1]
    lost = benchmark.COUNTERS["shared load requests"][1][0]
    asked = []

    def profile(metrics):
        asked.append(metrics)
        known = written(benchmark, figures, wide=False)
        return (
            (f"==ERROR== Failed to find metric {lost}\n", "")
            if lost in metrics
            else ("\n".join(line for line in known.splitlines() if lost not in line), "")
        )

    monkeypatch.setattr(benchmark, "_profile", profile)
    (row,) = benchmark.measured(1)
    assert (
        len(asked) == 2
        and row["shared load requests"] is None
        and row["global load sectors"] == 250
    )


def test_numba_compiles_our_kernels_for_a_gpu(benchmark):
    benchmark.use(numba_cuda)
    seen = set()
    for _, function, _, _, arguments in benchmark.launches(benchmark.lab_kernels(numba_cuda)):
        if not inspect.isfunction(function):
            continue  # the lab's call device functions, which Numba compiles only with a GPU
        signature = tuple(numba.typeof(array) for array in arguments)
        if (function, signature) not in seen:
            seen.add((function, signature))
            numba_cuda.compile_ptx(function, signature, cc=(9, 0))
