"""Programs that lab 08 compiles: buffers, random numbers, rewritings, and lab 07's engine."""

import json

import numpy as np
import pytest
import torch

from common import graphs, paths
from common.graphs import execute, same_bits
from common.hardware import device
from common.lessons.compiler import buggy_passes, cuda_graphs, graph_breaks, identities, rewriting
from common.lessons.compiler.expected import engine, rules

X, B = ("placeholder", "x"), ("buffer", "b")


def test_a_write_is_seen_by_later_reads_and_afterwards():
    rows = [X, B, ("read", (1,)), ("write", (1, 0)), ("read", (1,)), ("subtract", (4, 2))]
    feeds = {"x": np.array([1.0, 2.0]), "b": np.array([5.0, 5.0])}
    output, b, x, draws = execute(rows, [5], feeds)
    assert output.tolist() == [-4.0, -3.0] and b.tolist() == x.tolist() == [1.0, 2.0]
    assert draws == 0 and feeds["b"].tolist() == [5.0, 5.0]


def test_each_draw_gives_other_numbers_and_each_run_the_same():
    rows, feeds = [X, ("random", (0,)), ("random", (0,))], {"x": np.zeros(5)}
    first, again = (execute(rows, [1, 2], feeds) for _ in range(2))
    assert same_bits(first, again) and not same_bits(first[0], first[1])
    assert first[-1] == 2 and all(0 <= v < 1 for v in first[0])


def test_bits_tell_zeros_apart_but_not_nans():
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert same_bits(np.array([np.nan]), -np.array([np.nan]))
    assert not same_bits(np.zeros(2), np.zeros(3))
    assert not same_bits(np.zeros(2), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "rows, outputs, words",
    [
        ([X, ("sin", (1,))], [1], "earlier rows"),
        ([X, ("read", (0,))], [1], "a buffer goes to read and write alone"),
        ([X, ("nonsense", (0,))], [1], "no operator"),
        ([X], [1], "there are 1 rows"),
        (None, [0], "a program is a list of rows"),
    ],
)
def test_what_is_no_program_says_why(rows, outputs, words):
    with pytest.raises(ValueError, match=words):
        graphs.valid(rows, outputs)


def test_an_operator_is_left_out_in_favour_of_each_of_its_inputs():
    rows = [X, ("sin", (0,)), ("cos", (0,)), ("add", (1, 2))]
    texts = [graphs.formula(*less) for less in graphs.without(rows, [3], 3)]
    assert texts == ["sin(x)", "cos(x)"]


def test_the_widget_s_target_is_the_best_choice_that_changes_no_bit():
    good = [rule for rule in rewriting.RULES if rewriting.counterexample([rule]) is None]
    assert "Target reached!" in rewriting.verdict(good)
    assert len(good) == 4 and "Counterexample" in rewriting.verdict(list(rewriting.RULES))


def test_each_bug_shows_on_some_program():
    rng = np.random.default_rng(0)
    cases = [graphs.random_program(rng, 12, effects=False) for _ in range(600)]
    for bug in (*buggy_passes.BUGS, buggy_passes.CRASH):
        assert any(buggy_passes.fails(bug, *case) for case in cases), bug


def test_a_wrong_rule_is_not_proved():
    assert identities.proved((("matmul", "x", ("add", "y", "z")),
                              ("add", ("matmul", "x", "z"), ("matmul", "x", "y"))))  # fmt: skip
    assert not identities.proved((("matmul", "x", "y"), ("matmul", "y", "x")))
    assert not identities.proved((("transpose", "x"), "x"))


def test_lab_07_s_own_engine_is_taken_if_it_is_whole(tmp_path):
    solved = paths.ROOT / "solutions" / "07_autodiff.ipynb"
    names, whose = engine.engine(solved)
    assert whose == "yours" and "training_step" not in names
    notebook = json.loads(solved.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "def vjp" in "".join(cell["source"]):
            cell["source"] = "def vjp(node, g):\n    raise NotImplementedError"
    unfinished = tmp_path / "07_autodiff.ipynb"
    unfinished.write_text(json.dumps(notebook), encoding="utf-8")
    assert engine.engine(unfinished)[1] == engine.engine(tmp_path / "missing.ipynb")[1] == "ours"
    ours, theirs = (engine.training_step(e) for e in (engine.OURS, names))
    assert graphs.operators(ours[0]) == 59 and graphs.operators(theirs[0]) > 40


def test_convolutions_and_batch_norms_are_pytorch_s():
    draw = torch.Generator().manual_seed(0)
    x, weight, bias, gain, shift, mean = (
        torch.randn(*size, generator=draw, dtype=torch.float64)
        for size in ((2, 3, 6, 5), (4, 3, 2, 2), (4,), (4,), (4,), (4,))
    )
    variance = mean.abs()
    got = graphs.evaluate("convolve", *(v.numpy() for v in (x, weight, bias)))
    want = torch.nn.functional.conv2d(x, weight, bias)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-12)
    got = graphs.evaluate("batch_norm", got, *(v.numpy() for v in (gain, shift, mean, variance)))
    want = torch.nn.functional.batch_norm(want, mean, variance, gain, shift)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-12)


def test_search_reaches_its_par_and_greedy_rewriting_does_not():
    for task in rules.tasks(np.random.default_rng(0)):
        found, _ = rules.cheapest(task.expression, rules.LAWS, 1_000, slack=1.4)
        rules.judge_search(task, found)
        stuck = identities.greedy(task.expression, rules.LAWS)
        assert identities.cost(found) == task.par < identities.cost(stuck)
    assert rules.cheapest(rules.UPHILL, rules.LAWS)[0] == rules.UPHILL  # by equals alone


def test_a_graph_breaks_where_python_asks_for_data():
    assert graph_breaks.breaks("asks_for_shape") == graph_breaks.Breaks(1, "")
    assert graph_breaks.breaks("asks_for_data").graphs == 2
    assert "def selects" in graph_breaks.text("selects") and '"""' not in graph_breaks.text(
        "selects"
    )


@pytest.mark.skipif(device.has_gpu(), reason="it records on a GPU")
def test_without_a_gpu_nothing_is_recorded():
    (line,) = cuda_graphs.lines()
    assert line.startswith("No GPU here")


@pytest.mark.skipif(not device.has_gpu(), reason="CUDA graphs exist on GPUs alone")
def test_a_replay_reads_the_recorded_address():
    _, new_tensor, copied, refused = cuda_graphs.lines()
    assert new_tensor.split(": ")[1].split(",")[0] != new_tensor.split("want ")[1]
    assert copied.split(": ")[1].strip().split(",")[0] == copied.split("want ")[1]
    assert "no error" not in refused
