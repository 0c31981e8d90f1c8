"""mesh_training.py, decoding.py: meshes train as one device; the cache changes nothing."""

from typing import Any

import numpy as np
import pytest
import torch

from common import language_model
from common.language_model import Config
from common.lessons.scaling import decoding, mesh_training
from common.lessons.scaling.expected import pieces

USE = {name: piece for own in pieces.OURS.values() for name, piece in own.items()}
SMALL = Config(width=16, hidden=32, layers=3, heads=4)


@pytest.fixture(autouse=True)
def float64() -> None:
    """The default dtype."""
    torch.set_default_dtype(torch.float64)


def update(
    dist: Any,
    groups: Any,
    weights: Any,
    gradient: Any,
    state: Any,
    step: int,
    replicated: int,
    most: float,
) -> float:
    """Adam on whole vectors, of which each rank keeps a shard."""
    dist.all_reduce(gradient, group=groups["data"])
    squares = gradient * gradient
    squares[:replicated] /= dist.get_world_size(groups["tensor"])
    total = squares.sum().reshape(1) / dist.get_world_size(groups["data"])
    dist.all_reduce(total)
    norm = total.sqrt().item()
    if not state:
        state.update(m=torch.zeros_like(weights), v=torch.zeros_like(weights))
    mesh_training.adam(weights, gradient * min(1.0, most / norm), state["m"], state["v"], step)
    return norm


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (2, 1, 2), (3, 2, 1), (1, 4, 1), (2, 2, 2), (1, 1, 4)]
)
def test_a_mesh_trains_as_one_device(sizes: tuple[int, int, int]) -> None:
    """Weights, losses and norms to ten digits; one stage may have three layers and another one."""
    mesh, steps, rows = mesh_training.Mesh(*sizes), 3, 12
    result = mesh_training.run(USE, update, mesh, steps, rows, 2, SMALL, 8)
    want = mesh_training.one_device(
        mesh_training.named_weights(SMALL), mesh_training.texts(steps, rows, 8), SMALL
    )
    assert mesh_training.apart(mesh, result.returns, USE, want["weights"], SMALL) < 1e-10
    for told in result.returns:
        assert np.allclose(told["losses"], want["losses"], rtol=0, atol=1e-10)
        assert np.allclose(told["norms"], want["norms"], rtol=1e-9)


def test_one_text_per_replica() -> None:
    """Fewer texts than microbatches: each text is one."""
    mesh = mesh_training.Mesh(4, 2, 1)
    result = mesh_training.run(USE, update, mesh, 2, 4, 2, SMALL, 8)
    want = mesh_training.one_device(
        mesh_training.named_weights(SMALL), mesh_training.texts(2, 4, 8), SMALL
    )
    assert mesh_training.apart(mesh, result.returns, USE, want["weights"], SMALL) < 1e-10


def test_agrees_refuses_a_wrong_piece() -> None:
    """An attention that forgets its all-reduce trains something else."""
    assert mesh_training.agrees(USE, update)
    assert not mesh_training.agrees({**USE, "summed": lambda dist, x: x}, update)


def test_predicted_parts() -> None:
    """One rank has compute only; four stages wait (p − 1)/m of it."""
    known = mesh_training.Speeds(1.0, 1e-4, 1e9)
    one = mesh_training.predicted_s(mesh_training.Mesh(), known)
    assert one["compute"] == 1.0 and sum(one.values()) == 1.0
    four = mesh_training.predicted_s(mesh_training.Mesh(1, 4, 1), known, microbatches=8)
    assert four["bubble"] == pytest.approx(four["compute"] * 3 / 8)
    assert mesh_training.predicted_s(mesh_training.Mesh(2), known)["data"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 4, 1), (1, 1, 4)])
def test_predicted_messages_are_those_of_simulated_ranks(axes: tuple[int, int, int]) -> None:
    """Where computing is free, a step takes the messages predicted, in number and bytes."""
    config = Config(width=32, hidden=64, layers=4, heads=4)
    mesh, sizes = (
        mesh_training.Mesh(*axes),
        {"rows": 8, "microbatches": 2, "config": config, "length": 16},
    )
    for alpha_s, beta in ((1.0, 0.0), (0.0, 1.0)):
        link = {"alpha_s": alpha_s, "beta_s_per_byte": beta}
        one, two = (mesh_training.run(USE, update, mesh, n, **sizes, **link).time_s for n in (1, 2))
        known = mesh_training.Speeds(0.0, alpha_s, 1 / beta if beta else np.inf)
        predicted = sum(mesh_training.predicted_s(mesh, known, **sizes).values())
        assert two - one == pytest.approx(predicted, rel=0.02)


def test_speeds_and_a_step_in_turns() -> None:
    """Three numbers and a step's time, all positive, on ranks that train alone and together."""
    known, step_s = mesh_training.in_turns(
        USE, update, mesh_training.Mesh(1, 2, 1), 3, rows=4, config=SMALL, length=8
    )
    assert min(known) > 0 and step_s > 0


def test_the_product_of_codes() -> None:
    """Packed codes times x, against the dequantised matrix."""
    random = np.random.default_rng(0)
    codes = random.integers(-7, 8, (48, 64))
    scales = random.uniform(0.1, 1, (48, 2)).astype(np.float32)
    x = random.normal(size=(3, 64)).astype(np.float32)
    y = np.empty((3, 48), np.float32)
    decoding._kernel()(decoding.pack(codes), np.ascontiguousarray(scales.T), x, y)
    want = x @ (codes * scales.repeat(32, 1)).T
    assert np.allclose(y, want, rtol=1e-4, atol=1e-4)


def test_the_cache_writes_the_same() -> None:
    """More tokens than positions: the cache is filled anew, and the text is the same."""
    weights = decoding.quantized(pieces.quantize_groups)
    plain = decoding.dequantized(weights, pieces.dequantize_groups)
    cached, _ = decoding.write_cached(weights, 150)
    again, _ = decoding.write_again(plain, 150)
    assert cached == again
    writer = decoding.Writer(weights)
    tokens = list(decoding.PROMPT.encode())
    want = language_model.logits(np.array(tokens), plain)[-1]
    assert np.allclose(writer.read(tokens), want, atol=1e-3)
