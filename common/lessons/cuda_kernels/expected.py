"""Expected values of lab 03: counts by brute force, and the values of common mistakes."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes

from common.checks import WhenWrong
from nogpu.simt import occupancy

LANES, WORDS_PER_SECTOR = 32, 8


Mistakes = dict[str, np.ndarray]  # {what is wrong: what a kernel with this mistake stores}


def matrix_add_doubled(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, Mistakes]:
    """(a + 2 b, mistakes). c: what stands in the result before the launch."""
    want = np.add(a, 2.0 * b, dtype=np.float64).astype(np.float32)
    row, column = np.indices(c.shape)
    turned = {"Store into c[row, column], not into c[column, row].": want.T} if _square(c) else {}
    return want, turned | {
        "This is 2 a + b.": 2 * a + b,
        "Rows end at c.shape[0], columns at c.shape[1].": np.where(
            (row < c.shape[1]) & (column < c.shape[0]), want, c
        ),
        "This is a + b: double b.": a + b,
        "This is 2 (a + b): double b only.": 2 * (a + b),
        "This is 3 b: the first term is an element of a.": b + 2 * b,
    }


def _square(x: np.ndarray) -> bool:
    return x.shape[0] == x.shape[1]


def window_average(x: np.ndarray) -> tuple[np.ndarray, Mistakes]:
    """(the averages of three neighbours, mistakes)."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 3)
    weighted = {
        "x[i + 1] counts once, and x[i + 2] too.": (1, 2, 0),
        "The sum is not divided by 3.": (3, 3, 3),
        "The sum of three is divided by 2.": (1.5, 1.5, 1.5),
        "x[i] is missing from the sum.": (0, 1, 1),
        "The whole sum is divided by 3, not its last term alone: put it in brackets.": (3, 3, 1),
    }
    mistakes: Mistakes = {
        why: (windows @ weights / 3).astype(np.float32) for why, weights in weighted.items()
    }
    lane = np.arange(len(windows)) % 128
    middle = x[np.arange(len(windows)) - (lane > 0)] + x[:-2] + x[1:-1]
    begins = "The window of out[i] begins with x[i]: x[i] is not its middle."
    mistakes[begins] = (middle / 3).astype(np.float32)
    want = windows.mean(1)
    mistakes["// rounds down. Divide with /."] = np.floor(want).astype(np.float32)
    if len(x) > 130:
        halo, places = windows.copy(), lane[:, None] + range(3)
        halo[places > 127] = x[places[places > 127]]
        mistakes["Each block's last two numbers are its own: x[i + 128], not x[t + 128]."] = (
            halo.mean(1).astype(np.float32)
        )
    return want.astype(np.float32), mistakes


def transpose(x: np.ndarray, tile: int = 32) -> tuple[np.ndarray, Mistakes]:
    """(x.T, mistakes): what is in its old place, as a whole or tile by tile."""
    want = np.array(list(zip(*x, strict=True)), x.dtype)
    mistakes = {"This is x itself: two turns cancel.": x}
    if _square(x) and x.shape[0] % tile == 0:
        n = x.shape[0] // tile
        tiles = x.reshape(n, tile, n, tile)
        mistakes |= {
            "Each tile is turned; its place in `out` must be turned, too.": tiles.transpose(
                0, 3, 2, 1
            ).reshape(x.shape),
            "Each tile is in its place; it must be turned, too.": tiles.transpose(
                2, 1, 0, 3
            ).reshape(x.shape),
        }
    return want, mistakes


def block_sum(x: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, Mistakes]:
    """(out plus the sum of x, mistakes)."""
    alone = np.array([x.sum(dtype=np.float64)])
    blocks = np.pad(x, (0, -len(x) % 256)).reshape(-1, 256)
    largest = blocks.max(1).sum(keepdims=True)
    wrong = {
        "The sum is stored; it should be added to what is there.": alone,
        "Only the first warp's 32 numbers of each block arrive.": out + blocks[:, :32].sum(),
        "This adds each block's largest number, not its sum.": out + largest,
        "Only the first block's sum arrives: each block adds its own.": out + blocks[0].sum(),
        "The sum is wanted, not the mean.": out + alone / len(x),
        "Half of the tree is missing: begin with 128 pairs.": out + blocks[:, :128].sum(),
        "Nothing was added to out[0]: what was the block's sum?": out,
        "A thread past the end of x should bring 0 to the tree, not 1.": out
        + alone
        + -len(x) % 256,
        "A thread past the end of x should bring 0 to the tree, not an element again.": (
            out + alone + -len(x) % 256 * x[-1]
        ),
    }
    mistakes = {why: value.astype(np.float32) for why, value in wrong.items()}
    return (out + alone).astype(np.float32), mistakes


def matmul(a: np.ndarray, b: np.ndarray, tile: int) -> tuple[np.ndarray, Mistakes]:
    """(a @ b, mistakes)."""
    k = a.shape[1]
    last, end, whole = (k - 1) // tile * tile, -(-a.shape[0] // tile) * tile, k // tile * tile

    def product(first: int, stop: int) -> np.ndarray:
        return (a[:, first:stop].astype(np.float64) @ b[first:stop]).astype(np.float32)

    return product(0, k), _of_whole_tiles(a, b, tile) | {
        "The sum starts anew at each tile.": product(last, k),
        "Only the first tile along k counts: go on through all of k.": product(0, tile),
        "b's tile must move along k, too: begin at row k0.": _same_rows(a, b, tile),
        "k ends at a.shape[1], not at a.shape[0].": product(0, end),
        "The last tile along k is smaller, and it counts, too.": product(0, whole),
        "The last number of each tile along k is left out.": (
            product(0, k) - _every(a, b, range(tile - 1, k, tile))
        ).astype(np.float32),
        "a's tile is turned: thread (tx, ty) stores at [ty, tx], and a sum reads row ty.": (
            _turned(a, tile).astype(np.float64) @ b
        ).astype(np.float32),
    }


def _of_whole_tiles(a: np.ndarray, b: np.ndarray, tile: int) -> Mistakes:
    """Mistakes that a product of square matrices, whose tiles are whole, shows best."""
    if not (_square(a) and _square(b) and len(a) % tile == 0):
        return {}
    row, column = np.indices(a.shape)
    a, b, along = a.astype(np.float64), b.astype(np.float64), np.arange(len(a)) % tile
    found = {
        "The sum is overwritten at each k: add to it (+=).": a[:, -1:] @ b[-1:],
        "a's tile must move along k, too: begin at column k0.": a[:, along] @ b,
        "b's tile is turned: thread (tx, ty) stores at [ty, tx], and a sum reads column tx.": (
            a @ _turned(b, tile)
        ),
        "A sum reads row ty of a's tile, not row tx.": (a @ b)[
            row - row % tile + column % tile, column
        ],
        "Store into c[row, column], not into c[column, row].": (a @ b).T,
        "b is turned: its row moves with k, and its column is that of c.": a @ b.T,
    }
    return {why: value.astype(np.float32) for why, value in found.items()}


def _same_rows(a: np.ndarray, b: np.ndarray, tile: int) -> np.ndarray:
    """a @ b, if each tile of a along k meets the first rows of b."""
    rows = np.arange(a.shape[1]) % tile
    return (a.astype(np.float64) @ b[rows]).astype(np.float32)


def _every(a: np.ndarray, b: np.ndarray, places: range) -> np.ndarray:
    """What these places along k add to a @ b."""
    return a[:, places].astype(np.float64) @ b[places]


def _turned(a: np.ndarray, tile: int) -> np.ndarray:
    """The matrix with each of its tiles transposed, 0 outside of it."""
    rows, columns = a.shape
    whole = np.pad(a, ((0, -rows % tile), (0, -columns % tile)))
    tiles = whole.reshape(len(whole) // tile, tile, -1, tile)
    return tiles.transpose(0, 3, 2, 1).reshape(whole.shape)[:rows, :columns]


def histogram(tokens: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, Mistakes]:
    """(counts plus how often each token occurs, mistakes)."""
    alone = np.array([np.count_nonzero(tokens == v) for v in range(len(counts))], np.int32)
    return counts + alone, {
        "The counts are stored; they should be added to what is there.": alone,
        "Counter v belongs to the tokens v: these are shifted by one.": counts + np.roll(alone, 1),
        "Add 1 for each token, not the token itself.": (
            counts + alone * np.arange(len(counts), dtype=np.int32)
        ),
    }


def _warps(tile: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of the threads of a block of (tile, tile), a row of lanes per warp."""
    row, column = np.divmod(np.arange(tile * tile).reshape(-1, LANES), tile)
    return row, column


def _parts(n: int, tile: int) -> tuple[int, int, int]:
    """Sectors that one block asks for: naive of `a`, naive of `b`, and of one tile."""
    row, column = _warps(tile)
    k = np.arange(n)[:, None, None]
    return _sectors(row * n + k), _sectors(k * n + column), _sectors(row * n + column)


def _sectors(words: np.ndarray) -> int:
    """How many sectors these requests touch together; the last axis is a warp's words."""
    sectors = np.sort(words // WORDS_PER_SECTOR)
    return int(np.prod(sectors.shape[:-1]) + np.count_nonzero(np.diff(sectors)))


def matmul_sectors(n: int, tile: int) -> tuple[int, int]:
    """Sectors of the naive and of the tiled product, each request looked at by itself."""
    a, b, one_tile = _parts(n, tile)
    blocks = (n // tile) ** 2
    return blocks * (a + b), 2 * blocks * (n // tile) * one_tile


def mistaken_sectors(n: int, tile: int) -> WhenWrong:
    """{what is wrong: the answer that this mistake gives}."""
    return WhenWrong(lambda: _mistaken_sectors(n, tile) | _more_mistaken_sectors(n, tile))


def _mistaken_sectors(n: int, tile: int) -> dict[str, tuple[int, int]]:
    a, b, _ = _parts(n, tile)
    blocks, loads = (n // tile) ** 2, 2 * n**3
    warps, stores = n * n // LANES, n * n // WORDS_PER_SECTOR
    naive, tiled = matmul_sectors(n, tile)
    return {
        "Those are numbers. A sector holds eight of them.": (loads, loads // tile),
        "The lanes of one row want one word of `a`. It is fetched once.": (loads // 8, tiled),
        "A warp lies in 32/tile rows, and each row wants a sector of `a` of its own.": (
            blocks * (len(_warps(tile)[0]) * n + b),
            tiled,
        ),
        "A word that many lanes want is not free. It costs its sector once.": (blocks * b, tiled),
        "Those are requests. Each of them touches one sector or more.": (
            2 * n * warps,
            loads // tile // LANES,
        ),
        "The second number counts requests. Each touches several sectors.": (
            naive,
            loads // tile // LANES,
        ),
        "All rows of a warp want the same words of `b`: their sectors count once.": (
            blocks * (a + b * len(np.unique(_warps(tile)[0][0]))),
            tiled,
        ),
        "32 lanes make one request together: count for warps, not for threads.": (
            LANES * naive,
            tiled,
        ),
        "That is the tiled product without its gain: a tile is loaded once for `tile` steps.": (
            naive,
            tiled * tile,
        ),
        "Both a's tiles and b's are loaded.": (naive, tiled // 2),
        "Count all steps along k, not one.": (naive // n, tiled),
        "Count what is loaded. `c` is stored.": (naive + stores, tiled + stores),
    }


def _more_mistaken_sectors(n: int, tile: int) -> dict[str, tuple[int, int]]:
    a, b, _ = _parts(n, tile)
    blocks, tiled = (n // tile) ** 2, matmul_sectors(n, tile)[1]
    return {
        "The tiled kernel stores `c`, but loads only tiles.": (
            blocks * (a + b),
            tiled + n * n // WORDS_PER_SECTOR,
        ),
        "Of `b`, a warp wants `tile` neighbouring words. They lie in tile / 8 sectors.": (
            blocks * (a + 8 * b),
            tiled,
        ),
        "Of `a`, a warp wants a word for each of its rows, not for each lane.": (
            blocks * (a * tile + b),
            tiled,
        ),
    }


def takes(threads: int, registers: int, shared_bytes: int, sm: Mapping[str, int]) -> dict[str, int]:
    """What a block takes of each resource of an SM, in whole portions."""
    per_warp, shared = LANES * registers, shared_bytes + sm["reserved_bytes"]
    per_warp += -per_warp % sm["register_portion"]
    shared += -shared % sm["shared_portion"]
    warps = threads // LANES
    return {
        "blocks": 1,
        "threads": threads,
        "registers": warps * per_warp,
        "shared_bytes": shared,
    }


def resident_blocks(
    threads: int, registers: int, shared_bytes: int, sm: Mapping[str, int]
) -> tuple[int, str, Callable[[], Axes]]:
    """(blocks, which resource decides, a function that draws how they fill the SM)."""
    taken = takes(threads, registers, shared_bytes, sm)
    blocks, decides = _filled(taken, sm)
    return blocks, decides, lambda: occupancy.draw(taken, sm, blocks, f"{blocks} blocks fit")


def _filled(taken: Mapping[str, int], sm: Mapping[str, int]) -> tuple[int, str]:
    """(blocks, which resource decides): one block after another is put on the SM."""
    blocks = 0
    while True:
        for name, amount in taken.items():
            if (blocks + 1) * amount > sm[name]:
                return blocks, name
        blocks += 1


def mistaken_blocks(
    threads: int, registers: int, shared_bytes: int, sm: Mapping[str, int]
) -> dict[str, int]:
    """{what is wrong: the answer that this mistake gives}."""
    right, portion = takes(threads, registers, shared_bytes, sm), sm["register_portion"]
    wrong = {
        "A warp takes registers in multiples of sm['register_portion'].": {
            "registers": threads * registers
        },
        "The system takes sm['reserved_bytes'] for each block, too.": {
            "shared_bytes": shared_bytes + -shared_bytes % sm["shared_portion"]
        },
        "A block takes shared memory in multiples of sm['shared_portion'].": {
            "shared_bytes": shared_bytes + sm["reserved_bytes"]
        },
        "Each of a warp's 32 threads has registers of its own.": {"registers": registers},
        "A warp's registers are rounded up, not down.": {
            "registers": threads // LANES * (LANES * registers // portion * portion)
        },
        "A warp takes whole portions of registers, not each thread.": {
            "registers": threads * (registers + -registers % portion)
        },
        "The SM holds at most sm['blocks'] blocks.": {"blocks": 0},
    }
    mistakes = {why: _filled(right | change, sm)[0] for why, change in wrong.items()}
    most = [sm[name] // amount for name, amount in right.items() if amount]
    mistakes["The scarcest resource decides, not the most plentiful."] = max(most)
    if not right["shared_bytes"]:
        mistakes["Shared memory sets no limit if a block takes none of it."] = 0
    return mistakes
