"""common.figures: a prediction is a line, a measurement is dots, whatever the form they come in."""

from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from common import figures
from common.figures import charts

matplotlib.use("agg")

LABELS = {"xlabel": "size (elements)", "ylabel": "time", "title": "T"}


@pytest.fixture(autouse=True)
def style():
    with plt.rc_context():
        figures.use_style()
        yield
    plt.close("all")


def marks(ax):
    """(lines, dots) among what was plotted."""
    dots = [line for line in ax.lines if line.get_linestyle() == "None"]
    return [line for line in ax.lines if line not in dots], dots


def test_a_function_is_the_line_and_values_are_dots():
    ax: Any = figures.predicted_and_measured(
        [1, 10, 100], lambda n: 2 * n, [2, 21, 190], log="xy", yunit="s", **LABELS
    )
    (line,), (dots,) = marks(ax)
    assert np.allclose(line.get_ydata(), 2 * line.get_xdata()) and len(line.get_xdata()) > 100
    assert list(dots.get_ydata()) == [2, 21, 190]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["predicted", "measured"]


def test_values_are_a_line_through_the_same_x():
    (line,), (dots,) = marks(figures.predicted_and_measured([1, 2], [3, 4], [3, 5], **LABELS))
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2], [3, 4])
    assert list(dots.get_ydata()) == [3, 5]


def test_before_the_measurement_there_is_only_a_line():
    ax: Any = figures.predicted_and_measured([1, 2], [3, 4], **LABELS)
    assert len(marks(ax)[0]) == 1 and not marks(ax)[1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["predicted"]


def test_a_line_and_dots_with_one_label_share_a_colour():
    ax: Any = figures.predicted_and_measured(
        [1, 2], {"a": [1, 2], "b": lambda n: n}, {"b": [1, 2], "c": [2, 2]}, **LABELS
    )
    (a, b_line), (b_dots, c) = marks(ax)
    assert b_line.get_color() == b_dots.get_color()
    assert len({a.get_color(), b_line.get_color(), c.get_color()}) == 3
    assert b_dots.get_marker() != c.get_marker(), "on grey paper two colours are one"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]


def test_ticks_are_written_as_people_say_them():
    ax: Any = figures.predicted_and_measured(
        [1, 1e6], lambda n: n * 1e-9, log="xy", yunit="s", **LABELS
    )
    assert ax.yaxis.get_major_formatter()(1e-5, 0) == "10 µs"
    assert ax.xaxis.get_major_formatter()(0.1, 0) == "0.1"
    assert ax.xaxis.get_major_formatter()(1000, 0) == "1 k"
    assert [ax.xaxis.get_major_formatter()(value, 0) for value in (0.001, 1e-5, 2e-12)] == [
        "0.001",
        "10⁻⁵",
        "2·10⁻¹²",
    ]


def test_text_can_be_read_on_every_colour():
    def light(colour):  # WCAG 2.2, relative luminance
        parts = np.array(matplotlib.colors.to_rgb(colour))
        return (
            np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
            @ (0.2126, 0.7152, 0.0722)
            + 0.05
        )

    for colour in [*(f"C{i}" for i in range(6)), *plt.get_cmap("viridis")(np.linspace(0, 1, 32))]:
        dark, bright = sorted([light(colour), light(figures.ink(colour))])
        assert bright > 3 * dark, f"{figures.ink(colour)} on {colour}"


def test_a_roofline_numbers_its_points_and_separates_them_at_the_ridge():
    ax: Any = figures.roofline(
        lambda i: min(100, 10 * i), {"add": (0.1, 0.9), "matmul": (50, 95)}, ridge=10, title="R"
    )
    lines, dots = marks(ax)
    assert {float(dot.get_xdata()[0]) for dot in dots} == {0.1, 50}
    texts = [text.get_text() for text in ax.texts]
    assert {"1", "2", "memory-bound", "compute-bound"} <= set(texts)
    assert any("add" in text and "matmul" in text for text in texts)
    assert max(lines[0].get_ydata()) == 100


def test_in_a_roofline_no_number_covers_another():
    close = {name: (1 + i / 5, 2e12 + i * 1e10) for i, name in enumerate("abcd")}
    ax: Any = figures.roofline(
        lambda i: min(8e14, 4e12 * i), close | {"far": (900, 5e14)}, title="R"
    )
    ax.figure.draw_without_rendering()
    discs = [line for line in ax.lines if line.get_markersize() == 14]
    places = np.concatenate([disc.get_transform().transform(disc.get_xydata()) for disc in discs])
    distances = np.linalg.norm(places[:, None] - places, axis=-1) + 1e3 * np.eye(len(close) + 1)
    assert distances.min() > 10 / 72 * ax.figure.dpi
    assert np.allclose(places[-1], ax.transData.transform((900, 5e14))), "it had room where it is"


def test_many_series_are_named_next_to_the_figure():
    for count, outside in [(3, False), (5, True)]:
        ax: Any = figures.predicted_and_measured(
            [1, 2], {str(i): [i, i] for i in range(count)}, **LABELS
        )
        ax.figure.draw_without_rendering()
        assert (ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1) == outside


def test_the_style_is_set_and_needs_no_font_that_is_not_there():
    assert not plt.rcParams["axes.spines.top"]
    assert plt.rcParams["font.sans-serif"][0] == "DejaVu Sans"


def test_a_ladder_has_one_bar_per_rung_from_the_top_and_the_ceiling_as_a_line():
    ax: Any = figures.ladder(
        {"naive": 1.4, "tiled": 8.1, "best": 48.0},
        ceiling=("cuBLAS", 51.0),
        xlabel="TFLOP/s",
        title="T",
    )
    assert [bar.get_width() for bar in ax.patches] == [1.4, 8.1, 48.0]
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "naive",
        "tiled",
        "best",
    ] and ax.yaxis_inverted()
    (line,), _ = marks(ax)
    assert list(line.get_xdata()) == [51, 51]
    texts = {text.get_text(): text for text in ax.texts}
    assert list(texts) == ["1.4 (3%)", "8.1 (16%)", "48 (94%)", "cuBLAS: 51"]
    assert (
        texts["8.1 (16%)"].get_horizontalalignment() == "left"
        and texts["48 (94%)"].get_horizontalalignment() == "right"
    )  # inside its bar


def test_a_ladder_of_counts_needs_no_ceiling():
    ax: Any = figures.ladder({"naive": 139_264, "tiled": 4096}, xlabel="sectors", title="T")
    assert [text.get_text() for text in ax.texts] == ["139,264", "4,096"] and not ax.lines
    assert ax.xaxis.get_major_formatter()(20000, 0) == "20,000"


def test_the_ceiling_crosses_no_label():
    ax: Any = figures.ladder(
        {"one ring": 311, "eight rings": 336}, ceiling=("NCCL", 327), xlabel="GB/s", title="T"
    )
    ax.figure.draw_without_rendering()
    ceiling = ax.transData.transform((327, 0))[0]
    assert all(text.get_window_extent().x1 < ceiling for text in ax.texts[:2])


def test_a_notebook_s_figure_is_sharp_and_described_and_a_solution_s_is_small(monkeypatch):
    figure, ax = plt.subplots()
    ax.plot([1, 2])
    figures.describe(ax, "A line.")
    sharp, about = charts._described_png(figure)
    assert about["alt"] == "A line." and about["width"] > 700
    monkeypatch.setenv("COURSE_FIGURES", "small")
    small, about = charts._described_png(figure)
    assert about == {"alt": "A line."} and len(small) < len(sharp)
