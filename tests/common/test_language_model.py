"""The course's language model: NumPy's and PyTorch's versions agree, and it has learned."""

import numpy as np
import torch

from common import language_model


def test_the_weights_have_the_promised_shapes_and_number():
    weights = language_model.weights()
    assert {name: array.shape for name, array in weights.items()} == language_model.shapes()
    assert sum(array.size for array in weights.values()) == language_model.parameter_count()
    assert language_model.parameter_count() == 836_736


def test_numpy_and_pytorch_compute_the_same_scores():
    tokens = language_model.tokens(1000, 100)
    with torch.no_grad():
        want = language_model.module()(torch.from_numpy(tokens)[None])[0].numpy()
    np.testing.assert_allclose(language_model.logits(tokens), want, atol=2e-4)


def test_it_predicts_text_that_it_has_not_seen():
    start = int(0.95 * len(language_model.text()))
    seen_little = language_model.tokens(start, 129)
    assert language_model.loss(seen_little) < 1.4
    assert language_model.loss(seen_little[::-1].copy()) > 3


def test_every_intermediate_result_has_the_promised_shape():
    kept = language_model.activations(language_model.tokens(0, 20))
    assert kept["blocks.3.attention"].shape == (4, 20, 20) and kept["logits"].shape == (20, 128)
    assert kept["blocks.0.hidden"].shape == (20, 512) and kept["blocks.0.mixed"].shape == (20, 128)
    np.testing.assert_allclose(kept["blocks.1.attention"].sum(-1), 1, rtol=1e-5)
    assert np.isneginf(kept["blocks.0.scores"][:, 0, 1:]).all()
