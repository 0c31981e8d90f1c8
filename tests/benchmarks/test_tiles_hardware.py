"""benchmarks/tiles_hardware.py without a GPU: ncu's text is read, and what differs is said."""

import csv
import io
import itertools

import pytest

from common.hardware import device
from common.paths import ROOT

device.prepare_triton()

from benchmarks import tiles_hardware, tiles_kernels  # noqa: E402


def written(kernels, wide):
    """What ncu would write about kernels, [(name, {metric: value})]."""
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL)
    text.write("==PROF== Connected to process 1\n")
    metrics = tiles_hardware.METRICS
    head = ["ID", "Kernel Name"]
    table.writerow(
        [*head, *metrics] if wide else [*head, "Metric Name", "Metric Unit", "Metric Value"]
    )
    if wide:
        table.writerow([""] * (2 + len(metrics)))
    for number, (name, values) in enumerate(kernels):
        figures = [(metric, f"{values.get(metric, 0):,}") for metric in metrics]
        if wide:
            table.writerow([number, name, *(figure for _, figure in figures)])
        else:
            table.writerows([number, name, metric, "", figure] for metric, figure in figures)
    return text.getvalue()


@pytest.mark.parametrize("wide", [True, False])
def test_what_ncu_writes_is_read(wide):
    values = dict.fromkeys(tiles_hardware.METRICS, 1234.0)
    kernels = [("copied", values), ("rows", dict.fromkeys(tiles_hardware.METRICS, 0.0))]
    assert tiles_hardware.parsed(written(kernels, wide)) == kernels


def test_the_table_says_what_differs_and_what_failed():
    figures = dict.fromkeys(tiles_hardware.COUNTERS, 0) | {"load requests": 8, "store sectors": 30}
    metrics = dict.fromkeys(tiles_hardware.METRICS, 0.0)
    metrics[tiles_hardware.COUNTERS["load requests"][1][0]] = 8.0
    metrics[tiles_hardware.COUNTERS["store sectors"][1][0]] = 20.0
    ours, theirs = {"figures": figures}, {"metrics": metrics}
    lines = [
        *tiles_hardware.rows("a", ours, theirs),
        *tiles_hardware.rows("b", ours, {"error": "out of\nmemory"}),
        *tiles_hardware.rows("c", {"refused": "no"}, theirs),
    ]
    assert lines == [
        ("a", "load requests", "8", "8", "equal"),
        ("a", "store sectors", "30", "20", "+50.0%: NOT EXPLAINED"),
        ("b", "", "", "", "FAILED, GPU: out of memory"),
        ("c", "", "", "", "refused: no"),
    ]


def test_the_launches_are_many_and_the_same_each_time():
    first, second = tiles_kernels.launches(), tiles_kernels.launches()
    names = []
    for one, other in zip(first, second, strict=True):
        names.append(one.name)
        for a, b in zip(one.arguments, other.arguments, strict=True):
            assert a is b or bool((a == b).all()) if hasattr(a, "shape") else a == b
    assert len(set(names)) == len(names) > 100


def test_a_launch_is_counted():
    launch = next(tiles_kernels.launches())
    counted = tiles_hardware.counted(launch, 90)["figures"]
    assert (counted["load requests"], counted["load sectors"]) == (32, 512)
    broken = launch._replace(constants={})
    assert "needs" in tiles_hardware.counted(broken, 90)["error"]
    assert not any(each.any() for each in itertools.islice(launch.arguments, 1, 2))


def test_the_counts_are_still_those_of_the_table():
    table = (ROOT / "benchmarks" / "tiles_hardware.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "][2:]
    rows = {(name, counter): ours for name, counter, ours, *_ in lines if ours}
    chosen = list(tiles_kernels.launches())[1::7]
    for launch in chosen:
        counted = tiles_hardware.counted(launch, 90)
        for counter, figure in counted.get("figures", {}).items():
            assert rows.get((launch.name, counter), "0") == f"{figure:,}", (launch.name, counter)
    assert len(chosen) > 14
