"""What lab 10 has in common/: the digits network, formats in a widget, expected values, counted loops."""

from typing import Any

import ipywidgets
import numpy as np
import pytest
import torch

from common import figures
from common.hardware import device
from common.lessons.quantization import digit_reader, widget
from common.lessons.quantization import expected as oracle
from grading.source import labs
from nogpu.kernels import linecache_text
from tests import known_answers

device.prepare_triton()

DTYPES = {
    (5, 10, "infinity"): torch.float16,
    (8, 7, "infinity"): torch.bfloat16,
    (5, 2, "infinity"): torch.float8_e5m2,
    (4, 3, "nan"): torch.float8_e4m3fn,
}


def bits(tensor):
    kind = torch.uint8 if tensor.dtype.itemsize == 1 else torch.uint16
    return tensor.view(kind).numpy().astype(np.int64)


@pytest.mark.parametrize("form", DTYPES)
def test_the_oracle_decodes_and_encodes_as_pytorch_does(form):
    dtype = DTYPES[form]
    codes = np.arange(2 ** (8 * dtype.itemsize))
    kind = "uint8" if dtype.itemsize == 1 else "uint16"
    known = torch.from_numpy(codes.astype(kind)).view(dtype).double().numpy()
    np.testing.assert_array_equal(oracle.decoded(form), known)
    values = np.float32(np.random.default_rng(0).standard_normal(1000) * 20)
    np.testing.assert_array_equal(
        oracle.encoded(values.astype(float), form), bits(torch.from_numpy(values).to(dtype))
    )


def test_a_rescaled_network_computes_the_same_function():
    pixels, _ = digit_reader.data()
    net = digit_reader.network().requires_grad_(requires_grad=False)
    twin = digit_reader.rescaled(net, units=[3, 17], factor=30)
    largest, known = (digit_reader.linear(each)[0].weight.abs().max() for each in (twin, net))
    assert largest > 20 * known
    torch.testing.assert_close(twin(pixels), net(pixels), rtol=1e-4, atol=1e-4)


def test_averages_draw_a_mean_for_each_x_and_describe_themselves():
    runs = {"one": [[1, 3], [2, 2]], "other": [[5, 5], [7, 9]]}
    ax: Any = figures.averages(
        [4, 8], runs, xlabel="x", ylabel="y", title="t", alt="Two falling lines."
    )
    assert [line.get_ydata().tolist() for line in ax.lines[::3]] == [[2, 2], [5, 8]]
    assert figures.DESCRIPTIONS[ax.figure] == "Two falling lines."


def test_a_format_s_report_agrees_with_pytorch():
    sizes = 2.0 ** np.random.default_rng(0).normal(-12, 5, 2000)
    lost, infinite, error = widget.format_report(sizes, 5, 2, power=10)
    rounded = torch.from_numpy(sizes * 2**10).float().to(torch.float8_e5m2).double().numpy()
    assert lost == np.mean(rounded == 0) and infinite == np.mean(np.isinf(rounded))
    kept = (rounded > 0) & np.isfinite(rounded)
    assert error == pytest.approx(
        np.sqrt(np.mean((rounded / (sizes * 2**10) - 1)[kept] ** 2)), rel=1e-3
    )


def test_the_widget_says_when_its_target_is_reached():
    sizes = 2.0 ** np.random.default_rng(0).normal(-12, 4, 2000)
    box = widget.number_format(sizes, most_bits=8, lost=0.01, error=0.06)
    sliders, verdict, _ = box.children
    assert "not reached" in verdict.value
    for slider, value in zip(sliders.children, (5, 2, 12), strict=True):
        assert isinstance(slider, ipywidgets.IntSlider)
        slider.value = value
    assert "Target reached" in verdict.value


def test_the_loop_of_a_kernel_is_counted_in_its_machine_code():
    from common.lessons.quantization import int4

    answers = known_answers.read(labs.resolve("10"), "wrong")
    (usual,) = [answer for answer in answers if "usual unpacking" in answer.title]
    text = f"import triton\nimport triton.language as tl\n{usual.text('')}"
    linecache_text.remember("<usual>", text)
    names: dict = {}
    exec(compile(text, "<usual>", "exec"), names)  # noqa: S102  (our own text)
    counts = int4.per_weight(names["int4_matvec_kernel"])
    assert 4 < counts["all"] < 7 and 2.5 < counts["integer"] < 5
