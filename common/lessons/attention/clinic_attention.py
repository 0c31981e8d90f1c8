"""Causal attention of one head, float32 arrays q (n, d), k and v (m, d); some programs are wrong.

The last query sees all keys, and n <= m.
"""

import numpy as np
import torch


def scored(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    x = q @ k.T / np.float32(np.sqrt(q.shape[1]))
    hidden = np.arange(len(k)) > np.arange(len(q))[:, None] + len(k) - len(q)
    return np.where(hidden, np.float32(-np.inf), x)


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def right_plain(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return softmax(scored(q, k)) @ v


def right_by_torch(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    parts = (torch.tensor(x.copy()) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=seen).numpy()


def right_query_by_query(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    o = np.zeros((len(q), v.shape[1]), np.float32)
    for i, row in enumerate(q):
        end = i + 1 + len(k) - len(q)
        x = k[:end] @ row / np.sqrt(q.shape[1])
        power = np.exp(x - x.max())
        o[i] = power @ v[:end] / power.sum()
    return o


def right_in_double_precision(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (softmax(scored(q.astype(float), k.astype(float))) @ v).astype(np.float32)


def online(
    x: np.ndarray, v: np.ndarray, *, rescale_s: bool = True, rescale_o: bool = True
) -> np.ndarray:
    m, s = np.full((len(x), 1), -np.inf, np.float32), np.zeros((len(x), 1), np.float32)
    o = np.zeros((len(x), v.shape[1]), np.float32)
    for start in range(0, x.shape[1], 16):
        part = x[:, start : start + 16]
        top = np.maximum(m, part.max(axis=1, keepdims=True))
        shift = np.where(np.isinf(top), np.float32(0), top)
        old, power = np.exp(m - shift), np.exp(part - shift)
        s = (s * old if rescale_s else s) + power.sum(axis=1, keepdims=True)
        o = (o * old if rescale_o else o) + power @ v[start : start + 16]
        m = top
    return o / s


def right_online(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return online(scored(q, k), v)


def right_keys_backwards(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return online(scored(q, k)[:, ::-1], v[::-1])


def wrong_no_mask(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Every query sees every key."""
    return softmax(q @ k.T / np.float32(np.sqrt(q.shape[1]))) @ v


def wrong_aligned_left(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Query i sees keys up to i, also when there are more keys than queries."""
    x = q @ k.T / np.float32(np.sqrt(q.shape[1]))
    hidden = np.arange(len(k)) > np.arange(len(q))[:, None]
    return softmax(np.where(hidden, np.float32(-np.inf), x)) @ v


def wrong_not_itself(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A query does not see its own key, unless there is no other one."""
    x = scored(q, k)
    own = np.arange(len(k)) == np.arange(len(q))[:, None] + len(k) - len(q)
    return softmax(np.where(own & (np.arange(len(k)) > 0), np.float32(-np.inf), x)) @ v


def wrong_no_scale(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The scores are not divided by the root of d."""
    return softmax(scored(q, k) * np.float32(np.sqrt(q.shape[1]))) @ v


def wrong_divided_by_d(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The scores are divided by d, not by its root: with d = 1 this is right."""
    return softmax(scored(q, k) / np.float32(np.sqrt(q.shape[1]))) @ v


def wrong_scale_of_64(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The scale is 1/8, whatever d is."""
    return softmax(scored(q, k) * np.float32(np.sqrt(q.shape[1]) / 8)) @ v


def wrong_no_maximum(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """No maximum is subtracted, so scores of 90 overflow."""
    power = np.exp(scored(q, k))
    return power @ v / power.sum(axis=1, keepdims=True)


def wrong_maximum_begins_at_0(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The maximum begins at 0, so with scores of -200 every weight is 0."""
    x = scored(q, k)
    power = np.exp(x - np.maximum(x.max(axis=1, keepdims=True), np.float32(0)))
    return power @ v / power.sum(axis=1, keepdims=True)


def wrong_one_maximum(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One maximum serves all queries, so a query far below it has only weights of 0."""
    x = scored(q, k)
    power = np.exp(x - x.max())
    return power @ v / power.sum(axis=1, keepdims=True)


def wrong_hidden_at_minus_100(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Hidden scores become -100, which is above the scores of some queries."""
    return softmax(np.where(np.isinf(scored(q, k)), np.float32(-100), scored(q, k))) @ v


def wrong_hidden_at_0(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Hidden scores become 0, so hidden keys have weight."""
    return softmax(np.where(np.isinf(scored(q, k)), np.float32(0), scored(q, k))) @ v


def wrong_masked_after(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The mask comes after softmax, so the weights add up to less than 1."""
    weights = softmax(q @ k.T / np.float32(np.sqrt(q.shape[1])))
    return np.where(np.isinf(scored(q, k)), np.float32(0), weights) @ v


def wrong_o_not_rescaled(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """In blocks of 16 keys, o is not rescaled when the maximum moves."""
    return online(scored(q, k), v, rescale_o=False)


def wrong_s_not_rescaled(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """In blocks of 16 keys, s is not rescaled when the maximum moves."""
    return online(scored(q, k), v, rescale_s=False)


def wrong_nothing_rescaled(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """In blocks of 16 keys, neither sum is rescaled when the maximum moves."""
    return online(scored(q, k), v, rescale_s=False, rescale_o=False)


def wrong_mean_of_blocks(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Blocks of 16 keys are averaged, whatever their weight."""
    x = scored(q, k)
    o, count = np.zeros((len(q), v.shape[1]), np.float32), np.zeros((len(q), 1), np.float32)
    for start in range(0, len(k), 16):
        part = x[:, start : start + 16]
        seen = ~np.isinf(part).all(axis=1, keepdims=True)
        o += np.where(seen, np.nan_to_num(softmax(part)) @ v[start : start + 16], np.float32(0))
        count += seen
    return o / count


def wrong_last_block(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """From 16 keys on, keys that fill no block of 16 are left out, but for each query's own."""
    x = scored(q, k)
    whole = len(k) // 16 * 16 or len(k)
    own = np.arange(len(k)) == np.arange(len(q))[:, None] + len(k) - len(q)
    late = (np.arange(len(k)) >= whole) & ~own
    return softmax(np.where(late, np.float32(-np.inf), x)) @ v


def wrong_padded_block(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Keys past the end have a score of 0, so they take a part of the weight."""
    x, rest = scored(q, k), -len(k) % 16
    x = np.concatenate([x, np.zeros((len(q), rest), np.float32)], axis=1)
    return softmax(x)[:, : len(k)] @ v


def wrong_half_precision(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Scores and weights have float16, which has three digits."""
    return (softmax(scored(q, k).astype(np.float16)) @ v).astype(np.float32)


def wrong_keys_for_values(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The weights multiply the keys, not the values."""
    return softmax(scored(q, k)) @ k


def wrong_changes_q(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """It scales the queries in place."""
    result = softmax(scored(q, k)) @ v
    q *= np.float32(0.5)
    return result


def wrong_columns(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The weights of each key add up to 1, not those of each query."""
    x = scored(q, k)
    power = np.exp(x - x.max(axis=0, keepdims=True))
    return power / power.sum(axis=0, keepdims=True) @ v


def wrong_format(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The result is float64, not float32."""
    return softmax(scored(q, k)).astype(np.float64) @ v
