"""What a lab's checks assert of a launch, signs of a tuned kernel, pictures, and a GPU's waits."""

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from numba import float32

from common import figures
from common.checks import Pictures
from common.lessons.cuda_kernels import counted_and_measured, latency, launches, widget
from common.lessons.cuda_kernels import expected as oracle
from nogpu import simt
from nogpu.simt import cuda, occupancy

matplotlib.use("Agg")
N = 64


@cuda.jit
def copy(x, out):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def shifted(x, out):
    s, t = cuda.shared.array(60 + 2 * 2, float32), cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[N - 1 - t]


@cuda.jit
def fours(x, out):
    s, t = cuda.shared.array(256, float32), cuda.threadIdx.x
    early = float32(0)
    for i in range(4):
        s[i * N + t] = x[i * N + t]
    cuda.syncthreads()
    for i in range(4):
        early += x[i * N + t]
    for i in range(4):
        out[t] += s[4 * t + i] + early


def vector(n=N):
    return np.arange(n, dtype=np.float32)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that a failing check makes."""
    monkeypatch.setattr(Pictures, "wanted", True)
    monkeypatch.setattr(Pictures, "must_work", True)
    plt.close("all")
    yield plt.get_fignums
    plt.close("all")


def test_a_race_is_refused_and_both_of_its_lines_are_drawn(drawn):
    report = simt.count(shifted, 1, N, vector(), vector(), seed=0)
    with pytest.raises(AssertionError, match="shifted: race on s"):
        launches.clean(report)
    assert len(drawn()) == 2
    launches.clean(simt.count(copy, 1, N, vector(), vector()))


def test_par_says_what_was_counted_and_draws_the_costliest_line(drawn):
    report = simt.count(copy, 1, N, vector(), vector())
    launches.par(report, "global_loads.sectors", 8, "")
    with pytest.raises(
        AssertionError, match=r"copy took 8 sectors of global loads; par is 7\. Why"
    ):
        launches.par(report, "global_loads.sectors", 7, "Why.")
    assert len(drawn()) == 2  # the line's load and its store
    with pytest.raises(AssertionError, match="steps of the busiest warp"):
        launches.par(report, "steps", 1, "")
    assert len(drawn()) == 2


def test_a_wrong_result_is_drawn_beside_what_was_wanted(drawn):
    with pytest.raises(AssertionError, match="copy of 64"):
        launches.result(vector(), vector() + 1, "copy of 64")
    assert len(drawn()) == 1
    launches.result(vector(), vector(), "copy of 64")


def test_blocks_cover_each_length():
    assert launches.blocks_of(32, 1, 32, 33) == (1, 1, 2)


def test_neighbouring_loads_are_wide_and_loads_beside_the_work_are_early():
    report = simt.count(fours, 1, N, vector(4 * N), np.zeros(N, np.float32))
    assert report.wide_loads == 2  # per warp: one of 16 bytes for each thread's four words
    assert report.early_loads == 2 * 4 + 2 * 4  # of x behind the barrier, and of out
    again = simt.Report.from_dict(report.as_dict())
    assert (again.wide_loads, again.early_loads) == (report.wide_loads, report.early_loads)
    plain = simt.count(copy, 1, N, vector(), vector())
    assert (plain.wide_loads, plain.early_loads) == (0, 0)


def test_kernels_are_drawn_side_by_side_with_their_names():
    figure = simt.side_by_side(*(simt.count(copy, 1, N, vector(), vector()) for _ in range(2)))
    assert [text.get_text() for text in figure.texts] == ["copy", "copy"]
    assert len(figure.axes) == 4
    assert "copy: x 4, out 4" in figures.DESCRIPTIONS[figure]
    plt.close("all")


def test_the_blocks_of_an_sm_fill_its_scarcest_resource():
    blocks, decides, picture = oracle.resident_blocks(256, 128, 8320, occupancy.SMS["H200"])
    assert (blocks, decides) == (2, "registers")
    ax: Any = picture()
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(100)
    plt.close("all")


def test_the_table_of_the_hardware_is_drawn_with_names_where_it_differs():
    ax: Any = counted_and_measured.draw()
    names = {text.get_text().split(":")[0] for text in ax.texts}
    assert names == {
        "matmul_tiled",
        "matmul_register_tiled",
        "matmul_register_tiled and matmul_tiled",
    }
    plt.close("all")


@pytest.mark.parametrize(
    "pitch, wavefronts, said",
    [(30, 2, "does not fit"), (32, 32, "Not yet"), (35, 1, "smaller"), (33, 1, "Reached")],
)
def test_the_widget_says_when_its_target_is_reached(pitch, wavefronts, said):
    assert said in widget._judged(pitch, wavefronts)


def test_chains_lead_around_and_their_kernels_follow_them(monkeypatch):
    links = latency.make_links(1024, 8, "cpu")
    out = np.zeros(4, np.int32)
    latency.follow_four[1, 4](links.numpy(), out, 3)
    starts = np.arange(16).reshape(4, 4)
    np.testing.assert_array_equal(out, (starts + 3 * 128).sum(0))
    monkeypatch.setattr(latency, "_time_s", lambda *_: 2.0)
    gpu = latency.Chains(links, processors=4, wait_s=1e-6, copy_bytes_per_s=1e9)
    assert gpu.rate(None, 2, 8) == 4 * 8 * 32 * 2 * latency.STEPS * 4 / 2
    assert gpu.predicted(1, 1) == 4 * 128 / 1e-6
    assert gpu.predicted(1, 64) == 1e9
    ax = latency.draw(gpu, (2, 4), {"one": 1}, [gpu.rates(None, 1, (2, 4))])
    assert "1000 ns" in ax.title.get_text()
    plt.close("all")
    assert isinstance(links, torch.Tensor)
