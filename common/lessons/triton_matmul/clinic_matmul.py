"""Matrix products in Python, in tiles: float32 C = A B of fp16 matrices; some are wrong."""

import torch
from torch import Tensor


def steps(K: int, depth: int = 16) -> list[tuple[int, int]]:
    return [(start, min(start + depth, K)) for start in range(0, K, depth)]


def right_plain(a: Tensor, b: Tensor) -> Tensor:
    return a.float() @ b.float()


def right_rounded_once(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("ik,kj->ij", a.double(), b.double()).float()


def right_outer_products(a: Tensor, b: Tensor) -> Tensor:
    c = torch.zeros(len(a), b.shape[1])
    for k in range(a.shape[1]):
        c += a[:, k : k + 1].float() * b[k].float()
    return c


def right_two_halves_of_k(a: Tensor, b: Tensor) -> Tensor:
    half = a.shape[1] // 2
    return a[:, :half].float() @ b[:half].float() + a[:, half:].float() @ b[half:].float()


def right_tiles_with_padding(a: Tensor, b: Tensor) -> Tensor:
    (M, K), N = a.shape, b.shape[1]
    wide = torch.zeros(-(-M // 16) * 16, -(-K // 16) * 16)
    tall = torch.zeros(-(-K // 16) * 16, -(-N // 16) * 16)
    wide[:M, :K], tall[:K, :N] = a, b
    c = torch.zeros(len(wide), tall.shape[1])
    for i in range(0, len(wide), 16):
        for j in range(0, tall.shape[1], 16):
            for k in range(0, len(tall), 16):
                c[i : i + 16, j : j + 16] += (
                    wide[i : i + 16, k : k + 16] @ tall[k : k + 16, j : j + 16]
                )
    return c[:M, :N].contiguous()


def wrong_result_in_fp16(a: Tensor, b: Tensor) -> Tensor:
    """It returns fp16, not float32."""
    return (a.float() @ b.float()).half()


def wrong_result_rounded(a: Tensor, b: Tensor) -> Tensor:
    """It rounds the sums to fp16 before it returns them as float32."""
    return (a.float() @ b.float()).half().float()


def wrong_sum_in_fp16(a: Tensor, b: Tensor) -> Tensor:
    """It keeps the sum in fp16 from step to step along K."""
    c = torch.zeros(len(a), b.shape[1], dtype=torch.float16)
    for start, end in steps(a.shape[1]):
        c += (a[:, start:end].float() @ b[start:end].float()).half()
    return c.float()


def wrong_operands_in_bf16(a: Tensor, b: Tensor) -> Tensor:
    """It rounds A and B to bf16, which has three bits fewer than fp16."""
    return a.bfloat16().float() @ b.bfloat16().float()


def wrong_last_step(a: Tensor, b: Tensor) -> Tensor:
    """It leaves out the last step along K where K is no multiple of 16."""
    c = torch.zeros(len(a), b.shape[1])
    for start in range(0, a.shape[1] // 16 * 16, 16):
        c += a[:, start : start + 16].float() @ b[start : start + 16].float()
    return c


def wrong_one_too_many(a: Tensor, b: Tensor) -> Tensor:
    """It leaves out the last number of K where K is one more than a multiple of 16."""
    K = a.shape[1]
    K -= K % 16 == 1
    return a[:, :K].float() @ b[:K].float()


def wrong_last_rows(a: Tensor, b: Tensor) -> Tensor:
    """It leaves zeros in the last rows of C where M is no multiple of 16."""
    c = a.float() @ b.float()
    c[len(a) // 16 * 16 :] = 0
    return c


def wrong_last_columns(a: Tensor, b: Tensor) -> Tensor:
    """It leaves zeros in the last columns of C where N is no multiple of 16 and more than 16."""
    c, N = a.float() @ b.float(), b.shape[1]
    if N > 16:
        c[:, N // 16 * 16 :] = 0
    return c


def wrong_steps_of_rows(a: Tensor, b: Tensor) -> Tensor:
    """It takes as many steps along K as A has rows of tiles."""
    c = torch.zeros(len(a), b.shape[1])
    for start, end in steps(len(a)):
        c += a[:, start:end].float() @ b[start:end].float()
    return c


def wrong_strides_of_a(a: Tensor, b: Tensor) -> Tensor:
    """It takes A as stored row by row, whatever its strides are."""
    return torch.as_strided(a, a.shape, (a.shape[1], 1)).float() @ b.float()


def wrong_strides_of_b(a: Tensor, b: Tensor) -> Tensor:
    """It takes B as stored row by row, whatever its strides are."""
    return a.float() @ torch.as_strided(b, b.shape, (b.shape[1], 1)).float()


def wrong_bands(a: Tensor, b: Tensor) -> Tensor:
    """Its last band of tiles is taken to have 4 rows: it leaves out tiles where it has fewer."""
    rows, columns = -(-len(a) // 16), -(-b.shape[1] // 16)
    c, product = torch.zeros(len(a), b.shape[1]), a.float() @ b.float()
    for program in range(rows * columns):
        place = program % (4 * columns)
        i, j = program // (4 * columns) * 4 + place % 4, place // 4
        tile = slice(16 * i, 16 * i + 16), slice(16 * j, 16 * j + 16)
        c[tile] = product[tile]
    return c


def wrong_argument(a: Tensor, b: Tensor) -> Tensor:
    """It changes A."""
    a *= 2
    return (a.float() @ b.float()) / 2


def wrong_transposed(a: Tensor, b: Tensor) -> Tensor:
    """It returns the transpose of C where C is square."""
    c = a.float() @ b.float()
    return c.T.contiguous() if len(c) == c.shape[1] else c


def wrong_new_sum(a: Tensor, b: Tensor) -> Tensor:
    """A tile's sum begins with that of the tile to its left."""
    c, total = torch.zeros(len(a), b.shape[1]), None
    for j in range(0, b.shape[1], 16):
        tile = a.float() @ b[:, j : j + 16].float()
        total = tile if total is None or total.shape != tile.shape else total + tile
        c[:, j : j + 16] = total
    return c


def wrong_memory(a: Tensor, b: Tensor, kept: dict = {}) -> Tensor:  # noqa: B006
    """It remembers the result for a shape, and returns it again for other numbers."""
    return kept.setdefault((*a.shape, b.shape[1]), a.float() @ b.float()).clone()


def wrong_nan(a: Tensor, b: Tensor) -> Tensor:
    """It takes NaN in A for 0."""
    return torch.nan_to_num(a.float(), posinf=torch.inf, neginf=-torch.inf) @ b.float()


def wrong_subnormal(a: Tensor, b: Tensor) -> Tensor:
    """It takes the smallest numbers of fp16, below 2⁻¹⁴, for 0."""
    x = a.float()
    return torch.where(x.abs() < 2.0**-14, 0.0, x) @ b.float()


def wrong_twice(a: Tensor, b: Tensor) -> Tensor:
    """It adds the last step along K twice where K is a multiple of 32."""
    c = a.float() @ b.float()
    if a.shape[1] % 32 == 0:
        c += a[:, -16:].float() @ b[-16:].float()
    return c
