"""What lab 05 imports: arguments of launches, pipelines, pictures; and what its checks expect."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.checks import clinic
from common.lessons.triton_matmul import expected as oracle
from common.lessons.triton_matmul import pictures, widget

CONFIG = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "num_warps", "num_stages")


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "values, programs",
    [
        ((64, 256, 32, 8, 4, 2), 2),
        ((128, 256, 64, 8, 8, 3), 1),
        ((128, 128, 64, 8, 8, 4), 1),
        ((64, 64, 64, 8, 2, 2), 6),
        ((64, 64, 32, 8, 4, 7), 4),  # to the byte
        ((128, 256, 64, 8, 4, 2), 0),  # too many registers
        ((128, 128, 64, 8, 8, 40), 0),  # too much shared memory
    ],
)
def test_programs_that_fit_on_a_multiprocessor(values, programs):
    assert pictures.resident_programs(dict(zip(CONFIG, values, strict=True))) == programs


@given(st.integers(0, 30), st.integers(1, 6), st.floats(0, 10), st.floats(0, 10))
def test_a_pipeline_by_slots_is_the_pipeline_by_events(steps, stages, load_s, compute_s):
    want = oracle.pipeline(steps, stages, load_s, compute_s)
    np.testing.assert_allclose(pictures.steps_of(steps, stages, load_s, compute_s), want)


@pytest.mark.parametrize("stages", range(1, 8))
def test_a_settled_pipeline_takes_the_longer_of_two_times_per_step(stages):
    load_s, compute_s = 3.0, 1.0
    step_s = max(compute_s, (load_s + compute_s) / stages)
    assert math.isclose(pictures.settled(stages, load_s, compute_s), compute_s / step_s)


@pytest.mark.parametrize("rows, columns, group", [(5, 3, 2), (4, 4, 4), (3, 7, 8), (1, 1, 1)])
def test_bands_have_each_tile_once_and_mistakes_are_none_of_them(rows, columns, group):
    tiles = oracle.bands(rows, columns, group)
    assert len(set(tiles)) == len(tiles) == rows * columns
    assert tiles not in oracle.wrong_bands(rows, columns, group).values()
    assert oracle.first_tiles(rows, columns, group, 2).sum() == 16 * min(2, rows * columns)


def test_gelu_is_pytorch_s():
    x = torch.linspace(-20, 20, 1001, dtype=torch.float64)
    want = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(oracle.gelu(x), want)


def test_ranks_of_equal_numbers_are_their_mean():
    predicted = np.array([1.0, 1.0, 2.0, np.inf])
    assert oracle.rank_correlation(np.array([1.0, 2.0, 3.0, 9.0]), predicted) == pytest.approx(
        0.866, abs=1e-3
    )
    assert oracle.rank_correlation(np.arange(4.0), np.ones(4)) == 0


def test_the_clinic_s_programs_are_right_or_wrong_as_they_say():
    programs = clinic.programs("matmul")
    assert sum(not program.fault for program in programs) == 5
    assert sum(bool(program.fault) for program in programs) == 19


def test_pictures_are_drawn():
    def row_by_row(program):
        return divmod(program, 20)

    pictures.strips()
    assert "strips: 1 of A, 20 of B" in [
        ax.get_title() for ax in pictures.waves({"x; y": row_by_row}, 4, 20, 20).axes
    ][0].replace("x; y; ", "")
    pictures.order({"yours": [None, (0, 9), (0, 1)], "wanted": [(0, 0), (0, 1)]}, 1, 2)
    pictures.pipeline({"empty": [], "two": [(0.0, 1.0), (0.0, 2.0)]}, 1.0, 1.0)
    times = np.array([1.0, 2.0, 3.0]) * 1e-6
    pictures.predictions({"a": (np.array([np.inf, 1e-6, 2e-6]), times), "b": (times, times)})
    pictures.searches({"x": [np.ones(3)]}, [pictures.at_random(times, 3)])
    pictures.speeds([(1, 2, 3), (4, 5, 6)], [1e12, 2e12], np.full((2, 2), 1e12), "a GPU")


def test_the_widget_says_when_the_target_is_reached():
    box = widget.fed_tensor_cores(lambda m, n, k: (1.5e-6, 0.35e-6), 0.95, 150)
    controls, says, _ = box.children
    tile, depth, stages = controls.children
    assert "Not yet" in says.value
    tile.value, depth.value, stages.value = (128, 256), 32, 6
    assert "Reached" in says.value
