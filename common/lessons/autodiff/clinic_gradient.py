"""Adjoints of a residual block, y = x + tanh(x @ w + b), by people of mixed talent."""

import numpy as np


def right_plain(x, w, b, g):
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g + d @ w.T, x.T @ d, d.sum(0)


def right_einsum(x, w, b, g):
    d = g * (1 - np.tanh(np.einsum("nk,km->nm", x, w) + b) ** 2)
    through = np.einsum("nm,km->nk", d, w)
    return through + g, np.einsum("nk,nm->km", x, d), np.einsum("nm->m", d)


def right_cosh(x, w, b, g):
    d = g / np.cosh(x @ w + b) ** 2
    return g + d @ w.T, x.T @ d, d.sum(axis=0)


def right_by_rows(x, w, b, g):
    dx, dw, db = g.copy(), np.zeros_like(w), np.zeros_like(b)
    for i in range(len(x)):
        d = (1 - np.tanh(x[i] @ w + b) ** 2) * g[i]
        dx[i] += w @ d
        dw += np.outer(x[i], d)
        db += d
    return dx, dw, db


def right_by_factors(x, w, b, g):
    t = np.tanh(x @ w + b)
    d = (1 + t) * (1 - t) * g
    return (d @ w.transpose()) + g, (d.T @ x).T, np.ones(len(d)) @ d


def right_by_elements(x, w, b, g):
    n, k = x.shape
    dx, dw, db = np.zeros((n, k)), np.zeros((k, k)), np.zeros(k)
    for i in range(n):
        for j in range(k):
            t = np.tanh(sum(x[i, m] * w[m, j] for m in range(k)) + b[j])
            d = g[i, j] * (1 - t * t)
            dx[i, j] += g[i, j]
            dx[i] += d * w[:, j]
            dw[:, j] += d * x[i]
            db[j] += d
    return dx, dw, db


def wrong_no_residual(x, w, b, g):
    """x goes two ways, and only the way through tanh comes back."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return d @ w.T, x.T @ d, d.sum(0)


def wrong_residual_only(x, w, b, g):
    """x goes two ways, and only the straight way comes back."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g.copy(), x.T @ d, d.sum(0)


def wrong_not_transposed(x, w, b, g):
    """w is not transposed on the way back, which is right only for a symmetric w."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g + d @ w, x.T @ d, d.sum(0)


def wrong_weights_transposed(x, w, b, g):
    """The adjoint of w is transposed, which is right only for k = 1."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g + d @ w.T, d.T @ x, d.sum(0)


def wrong_g_of_ones(x, w, b, g):
    """The tanh's adjoint forgets g, which is right only where g is 1."""
    t = np.tanh(x @ w + b)
    d = 1 - t * t
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_mean_of_rows(x, w, b, g):
    """The adjoint of b is the mean over the rows, which is right only for one row."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g + d @ w.T, x.T @ d, d.mean(0)


def wrong_first_row(x, w, b, g):
    """The adjoint of b is that of the first row alone, which is right only for one row."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    return g + d @ w.T, x.T @ d, d[0].copy()


def wrong_slope_of_the_output(x, w, b, g):
    """The slope of tanh is taken of the block's output, which is right only for x = 0."""
    y = x + np.tanh(x @ w + b)
    d = g * (1 - y * y)
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_without_b(x, w, b, g):
    """The tanh is recomputed without b, which is right only for b = 0."""
    t = np.tanh(x @ w)
    d = g * (1 - t * t)
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_negative_g(x, w, b, g):
    """Negative parts of g are lost on the way through tanh."""
    t = np.tanh(x @ w + b)
    d = np.maximum(g, 0) * (1 - t * t)
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_squeezed(x, w, b, g):
    """A batch of one row loses its axis."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    dx = g + d @ w.T
    return dx[0] if len(x) == 1 else dx, x.T @ d, d.sum(0)


def wrong_nan_at_zero(x, w, b, g):
    """It divides by tanh, so that it gives NaN where x @ w + b is exactly 0."""
    t = np.tanh(x @ w + b)
    d = g * t * (1 / t - t)
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_overflow(x, w, b, g):
    """It computes tanh by exp, which overflows to NaN where x @ w + b is above 355."""
    e = np.exp(2 * (x @ w + b))
    t = (e - 1) / (e + 1)
    d = g * (1 - t * t)
    return g + d @ w.T, x.T @ d, d.sum(0)


def wrong_changes_g(x, w, b, g):
    """Its numbers are right, but it computes them in g, which belongs to its caller."""
    t = np.tanh(x @ w + b)
    dx = g.copy()
    g *= 1 - t * t
    return dx + g @ w.T, x.T @ g, g.sum(0)


def wrong_large_step(x, w, b, g):
    """The adjoint of b is a difference with a step of 0.01, which is right to a few digits only."""
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    ahead, behind = np.tanh(x @ w + b + 0.01), np.tanh(x @ w + b - 0.01)
    return g + d @ w.T, x.T @ d, (g * (ahead - behind) / 0.02).sum(0)


def wrong_remembered(x, w, b, g, kept={}):  # noqa: B006
    """It remembers the slope of tanh for a shape, and gives the first point's at the next one."""
    if x.shape not in kept:
        kept[x.shape] = 1 - np.tanh(x @ w + b) ** 2
    d = g * kept[x.shape]
    return g + d @ w.T, x.T @ d, d.sum(0)
