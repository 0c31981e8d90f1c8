"""Softmaxes of the rows of a float32 array: right ones, and wrong ones that look right."""

import numpy as np
import torch


def right_shifted(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def right_in_double_precision(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(axis=1)[:, None])
    return (power / power.sum(axis=1)[:, None]).astype(np.float32)


def right_by_torch(x: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.tensor(x.copy()), 1).numpy()


def right_by_logarithms(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=1, keepdims=True)
    return np.exp(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def right_by_powers_of_two(x: np.ndarray) -> np.ndarray:
    power = np.exp2((x - x.max(axis=1, keepdims=True)) * np.float32(np.log2(np.e)))
    return power * (1 / power.sum(axis=1, keepdims=True))


def right_row_by_row(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for row, values in enumerate(x):
        power = np.exp(values - max(values))
        y[row] = power / sum(sorted(power.tolist()))
    return y


def right_online(x: np.ndarray) -> np.ndarray:
    rows, columns = x.shape
    top, total = np.full((rows, 1), -np.inf, np.float32), np.zeros((rows, 1), np.float32)
    for start in range(0, columns, 16):
        block = x[:, start : start + 16]
        higher = np.maximum(top, block.max(axis=1, keepdims=True))
        shift = np.where(np.isinf(higher), np.float32(0), higher)
        total = total * np.exp(top - shift) + np.exp(block - shift).sum(axis=1, keepdims=True)
        top = higher
    return np.exp(x - top) / total


def right_scaled_in_place(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y -= y.max(axis=1, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=1, keepdims=True)
    return y


def wrong_no_maximum(x: np.ndarray) -> np.ndarray:
    """No maximum is subtracted, so scores of 90 overflow."""
    power = np.exp(x)
    return power / power.sum(axis=1, keepdims=True)


def wrong_one_maximum(x: np.ndarray) -> np.ndarray:
    """One maximum serves the whole array, so in rows far below it every power is 0."""
    power = np.exp(x - x.max())
    return power / power.sum(axis=1, keepdims=True)


def wrong_first_maximum(x: np.ndarray) -> np.ndarray:
    """The first element of each row serves as its maximum, so a rise of 90 overflows."""
    start = x[:, :1]
    power = np.exp(x - np.where(np.isinf(start), np.float32(0), start))
    return power / power.sum(axis=1, keepdims=True)


def wrong_largest_magnitude(x: np.ndarray) -> np.ndarray:
    """The largest magnitude is subtracted, so in a row of -200 every power is 0."""
    size = np.where(np.isinf(x), np.float32(0), np.abs(x)).max(axis=1, keepdims=True)
    power = np.exp(x - size)
    return power / power.sum(axis=1, keepdims=True)


def wrong_maximum_begins_at_0(x: np.ndarray) -> np.ndarray:
    """The maximum begins at 0, so in a row of -200 every power is 0."""
    power = np.exp(x - np.maximum(x.max(axis=1, keepdims=True), np.float32(0)))
    return power / power.sum(axis=1, keepdims=True)


def wrong_columns(x: np.ndarray) -> np.ndarray:
    """The columns add up to 1, and the rows do not."""
    power = np.exp(x - x.max(axis=0, keepdims=True).clip(-3e38))
    return power / power.sum(axis=0, keepdims=True)


def wrong_one_sum(x: np.ndarray) -> np.ndarray:
    """The whole array adds up to 1, and not each row: with a single row, this is right."""
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum()


def wrong_changes_its_argument(x: np.ndarray) -> np.ndarray:
    """The argument is overwritten on the way to the right result."""
    x -= x.max(axis=1, keepdims=True)
    power = np.exp(x)
    return power / power.sum(axis=1, keepdims=True)


def wrong_sum_not_rescaled(x: np.ndarray) -> np.ndarray:
    """In blocks of 16, the sum so far is not rescaled when the maximum moves."""
    rows, columns = x.shape
    top, total = np.full((rows, 1), -np.inf, np.float32), np.zeros((rows, 1), np.float32)
    for start in range(0, columns, 16):
        block = x[:, start : start + 16]
        top = np.maximum(top, block.max(axis=1, keepdims=True))
        shift = np.where(np.isinf(top), np.float32(0), top)
        total += np.exp(block - shift).sum(axis=1, keepdims=True)
    return np.exp(x - top) / total


def wrong_first_block_of_nothing(x: np.ndarray) -> np.ndarray:
    """If the first 16 numbers of a row are -inf, it gives NaN: -inf - (-inf)."""
    rows, columns = x.shape
    top, total = np.full((rows, 1), -np.inf, np.float32), np.zeros((rows, 1), np.float32)
    for start in range(0, columns, 16):
        block = x[:, start : start + 16]
        higher = np.maximum(top, block.max(axis=1, keepdims=True))
        total *= np.exp(top - higher)
        total += np.exp(block - higher).sum(axis=1, keepdims=True)
        top = higher
    return np.exp(x - top) / total


def wrong_last_block(x: np.ndarray) -> np.ndarray:
    """From 16 columns on, the last columns are left out of the sum if they fill no block of 16."""
    columns = x.shape[1]
    power = np.exp(x - x.max(axis=1, keepdims=True))
    whole = columns // 16 * 16 or columns
    return power / power[:, :whole].sum(axis=1, keepdims=True).clip(1e-30)


def wrong_long_rows(x: np.ndarray) -> np.ndarray:
    """Rows longer than 1,024 are summed over their first 1,024 columns only."""
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power[:, :1024].sum(axis=1, keepdims=True).clip(1e-30)


def wrong_half_precision(x: np.ndarray) -> np.ndarray:
    """It computes in float16, which has three digits."""
    power = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float16))
    return (power / power.sum(axis=1, keepdims=True, dtype=np.float32)).astype(np.float32)


def wrong_large_rounding(x: np.ndarray) -> np.ndarray:
    """It subtracts m + log(s) at once, which rounds m's digits off: scores of 10,000 lose three."""
    top = x.max(axis=1, keepdims=True)
    return np.exp(x - (top + np.log(np.exp(x - top).sum(axis=1, keepdims=True))))


def wrong_clipped(x: np.ndarray) -> np.ndarray:
    """Differences below -20 are clipped, so small weights are far too large."""
    shifted = x - x.max(axis=1, keepdims=True)
    power = np.where(np.isinf(x), np.float32(0), np.exp(np.maximum(shifted, np.float32(-20))))
    return power / power.sum(axis=1, keepdims=True)


def wrong_filled(x: np.ndarray) -> np.ndarray:
    """-inf is replaced by -10,000, which is above the rows that lie below it."""
    finite = np.maximum(x, np.float32(-1e4))
    power = np.exp(finite - finite.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def wrong_masked_counts(x: np.ndarray) -> np.ndarray:
    """-inf is replaced by 0, so what was masked gets weight."""
    finite = np.where(np.isinf(x), np.float32(0), x)
    power = np.exp(finite - finite.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def wrong_ties(x: np.ndarray) -> np.ndarray:
    """The maximum is counted once in the sum, even if several elements have it."""
    top = x.max(axis=1, keepdims=True)
    power = np.exp(x - top)
    return power / (1 + np.where(x < top, power, np.float32(0)).sum(axis=1, keepdims=True))


def wrong_order(x: np.ndarray) -> np.ndarray:
    """The result is sorted."""
    power = np.exp(np.sort(x, axis=1) - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def wrong_base(x: np.ndarray) -> np.ndarray:
    """It takes powers of 2, not of e."""
    power = np.exp2(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def wrong_epsilon(x: np.ndarray) -> np.ndarray:
    """It adds 0.001 to the sum to be safe from dividing by 0: rows add up to less than 1."""
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / (power.sum(axis=1, keepdims=True) + np.float32(1e-3))


def wrong_small_weights(x: np.ndarray) -> np.ndarray:
    """Weights below a millionth are set to 0."""
    power = np.exp(x - x.max(axis=1, keepdims=True))
    power /= power.sum(axis=1, keepdims=True)
    return np.where(power < 1e-6, np.float32(0), power)


def wrong_format(x: np.ndarray) -> np.ndarray:
    """The result is float64, not float32."""
    wide = x.astype(np.float64)
    power = np.exp(wide - wide.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def wrong_one_column(x: np.ndarray) -> np.ndarray:
    """A single column has no other elements to compare with, and comes out as 0."""
    power = np.exp(x - x.max(axis=1, keepdims=True))
    others = power.sum(axis=1, keepdims=True)
    return power / others if x.shape[1] > 1 else power - others
