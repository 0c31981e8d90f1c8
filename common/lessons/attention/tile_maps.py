"""Which tiles of the scores a mask leaves: empty, partial or full."""

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from common import figures
from common.checks import open_exercise
from common.lessons.attention.flex_mods import Mod
from nogpu.ranks.dispatch import DispatchMode

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("empty: skipped", "partial: masked", "full: no mask")
COLOURS = ("#f2f2f2", "C1", "C0")
TOKENS = 1024  # of the widget's text


@contextlib.contextmanager
def few_tiles(
    queries: int, keys: int, block_q: int, block_k: int
) -> Iterator[Callable[[Mod], Mod]]:
    """While it is open, nobody makes or keeps much more than a tile of pairs: ValueError says who.

    Gives what limits a mask_mod in the same way.
    """
    pairs, rows = block_q * block_k, block_k * queries + block_q * keys
    asked = Asked(pairs, 2 * rows)  # whoever makes the next row of tiles may still hold the last
    room = max(4 * pairs, 4 * (queries + keys), -(-queries // block_q) * -(-keys // block_k))
    with _Small(room if room < queries * keys else math.inf):
        yield asked.limited


class Asked:
    """What a mask_mod answered, while it is kept. pairs: of one question; kept: of all answers."""

    def __init__(self, pairs: int, kept: int) -> None:
        self.pairs, self.kept = pairs, kept
        self.answers = weakref.WeakSet[torch.Tensor]()

    def limited(self, mask_mod: Mod) -> Mod:
        """The mask_mod, which refuses to be asked about more pairs than a tile has."""

        def asked(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
            if math.prod(torch.broadcast_shapes(i.shape, j.shape)) > self.pairs:
                raise ValueError(
                    f"a mask_mod is asked about one tile at a time, {self.pairs} pairs at most"
                )
            held = sum(answer.numel() for answer in self.answers)
            if held > self.kept:
                raise ValueError(
                    f"tiles with {held:,} pairs are still kept: together they are the matrix that "
                    "nobody asked for. Keep the kind of a tile, not the tile"
                )
            visible = mask_mod(b, h, i, j)
            self.answers.add(visible)
            return visible

        return asked


class _Small(DispatchMode):
    """While it is open, PyTorch makes no tensor of more elements than this."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def executed(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        if isinstance(result, torch.Tensor) and result.untyped_storage().nbytes():
            held = result.untyped_storage().nbytes() // result.itemsize
            if held > self.most:
                raise ValueError(
                    f"a tensor of {held:,} numbers ({result.dtype}) is made, and {self.most:,} "
                    "will do: queries × keys of them are the matrix that nobody asked for"
                )


def share(kinds: Any) -> float:
    """Which part of the tiles is computed: those that are not empty."""
    return float((np.asarray(kinds) > 0).mean())


def draw(maps: Mapping[str, Any]) -> "Sequence[Axes]":
    """Axes with the tiles of each map. maps: {title: kinds of tiles, 0, 1 or 2}."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    figure, grid = plt.subplots(1, len(maps), figsize=(2.6 * max(2, len(maps)), 3.2), squeeze=False)
    colours = [plt.matplotlib.colors.to_hex(colour) for colour in COLOURS]
    for ax, (title, kinds) in zip(grid[0], maps.items(), strict=True):
        ax.imshow(np.asarray(kinds), cmap=ListedColormap(colours), vmin=0, vmax=2)
        ax.set(title=f"{title}\n{share(kinds):.0%} computed", xticks=[], yticks=[])
        ax.set(xlabel="blocks of keys")
    grid[0][0].set_ylabel("blocks of queries")
    patches = [Patch(color=c, label=name) for c, name in zip(colours, KINDS, strict=True)]
    figure.legend(handles=patches, ncols=3, loc="outside lower center", frameon=False)
    computed = ", ".join(f"{title}: {share(kinds):.0%}" for title, kinds in maps.items())
    figures.describe(grid[0], f"Tiles of the scores that are computed under a mask. {computed}.")
    return grid[0]


def verdict(width: int, block: int, kinds: Any) -> str:
    """What the widget says about a window of so many keys, in tiles of this size."""
    computed = share(kinds)
    reached = width >= 128 and block >= 64 and computed <= 0.2
    return (
        f"<b>{'Target reached!' if reached else 'Not yet.'}</b> {computed:.1%} of the tiles are "
        f"computed; {width / TOKENS:.1%} of the pairs are needed at most. "
        "Target: a window of at least 128 keys, tiles of at least 64 × 64, at most 20 % computed."
    )


def window_kinds(kinds_of: Callable[[int, int], Any], width: int, block: int) -> tuple[Any, str]:
    """(the kinds of a window's tiles, whose they are): ours while the exercise is open."""
    try:
        return kinds_of(width, block), ""
    except NotImplementedError as is_open:
        exercise = open_exercise(is_open)
        # How far the query of a tile's first pair is from its key. Others are nearer or farther.
        distance = block * np.subtract.outer(*2 * [np.arange(TOKENS // block)])
        nearest, farthest = distance - block + 1, distance + block - 1
        some = (farthest >= 0) & (nearest < width)
        every = (nearest >= 0) & (farthest < width)
        return some.astype(int) + every, f"<br>{exercise} is open: these tiles are the course's."


def widget(kinds_of: Callable[[int, int], Any]) -> Any:
    """Choose a window and the size of tiles, so that few tiles are computed.

    kinds_of(width, block): the kinds of tiles of TOKENS queries and keys under a sliding window.
    """
    import ipywidgets

    width = ipywidgets.SelectionSlider(options=[32, 64, 128, 256, 512], value=256,
                                       description="window")  # fmt: skip
    block = ipywidgets.SelectionSlider(options=[16, 32, 64, 128, 256], value=128,
                                       description="tile")  # fmt: skip
    said = ipywidgets.HTML()

    def show(width: int, block: int) -> None:
        import matplotlib.pyplot as plt

        kinds, whose = window_kinds(kinds_of, width, block)
        said.value = verdict(width, block, kinds) + whose
        draw({f"window of {width}, tiles of {block} × {block}": kinds})
        plt.show()

    picture = ipywidgets.interactive_output(show, {"width": width, "block": block})
    picture.layout.min_height = "330px"
    return ipywidgets.VBox([ipywidgets.HBox([width, block]), said, picture])
