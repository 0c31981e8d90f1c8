"""Lab 08's emitted kernels on a GPU, compared with torch.compile and with a copy.

    python -m benchmarks.fusion [FILE]    prints the table and writes it (benchmarks/fusion.md)

Each program is a chain of 3 to 12 element-wise operators on x (8192, 8192), 2**26 elements in
float32, with a row (8192,) and a column (8192, 1) that are broadcast. Times are medians of seven
rounds, in which ours, the peer and the copy take turns. The result is first compared with float64.
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import triton

from benchmarks.kernels import in_a_row_s, mean
from benchmarks.solved import solved
from common.hardware import device, timing
from common.lessons.compiler import emitted

FILE = Path(__file__).with_suffix(".md")
ROWS, COLUMNS = 8192, 8192
CHAINS = range(3, 13)  # operators
GOALS = 0.95, 0.9  # of torch.compile's speed, of the copy's bandwidth


class Row(NamedTuple):
    """A chain of so many operators: seconds of each, and the bytes that it must move."""

    operators: int
    ours_s: float
    compiled_s: float
    copy_s: float
    bytes_moved: int

    @property
    def ratio(self) -> float:
        """Our speed over torch.compile's."""
        return self.compiled_s / self.ours_s

    @property
    def share(self) -> float:
        """Our bandwidth over the copy's."""
        return self.bytes_moved / self.ours_s / (2 * 4 * ROWS * COLUMNS / self.copy_s)


def rows() -> Iterator[Row]:
    """A Row for each length of a chain."""
    names: dict[str, Any] = solved("08")
    feeds = emitted.feeds(ROWS, COLUMNS)
    arrays = list(feeds.values())
    out, copy = (torch.empty_like(arrays[0]) for _ in range(2))
    for operators in CHAINS:
        graph = emitted.elementwise_chain(operators)
        shapes = emitted.shapes_of(graph, feeds)
        (group,) = names["fusion_groups"](graph, [len(graph) - 1], shapes)
        text = names["fuse_elementwise"](graph, group, shapes)
        used = [arrays[i] for i in range(3) if _reads(graph, i)]
        function = emitted.torch_function(graph, len(graph) - 1)
        _require_close(text, used, out, function(*(x.double() for x in arrays)), operators)
        torch._dynamo.reset()  # noqa: SLF001 - each chain is compiled anew, without dynamic shapes
        compiled = torch.compile(function, dynamic=False)
        compiled(*arrays)
        ours = functools.partial(emitted.launch, text, used, out)
        theirs = functools.partial(compiled, *arrays)
        times_s = timing.in_turns(
            in_a_row_s, ours, theirs, functools.partial(copy.copy_, arrays[0])
        )
        ours_s, compiled_s, copy_s = times_s
        yield Row(operators, ours_s, compiled_s, copy_s, sum(x.nbytes for x in [*used, out]))


def _reads(graph: list[Any], leaf: int) -> bool:
    return any(leaf in content for op, content in graph if isinstance(content, tuple))


def _require_close(
    text: str, arrays: list[torch.Tensor], out: torch.Tensor, want: torch.Tensor, operators: int
) -> None:
    """Ends the run if ours is wrong."""
    emitted.launch(text, arrays, out)
    error = float((out.double() - want).norm() / want.norm())
    if not error < 1e-5:
        sys.exit(f"a chain of {operators}: relative error {error:.1e}, 1e-05 allowed")


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown, and their geometric means."""
    rows = list(rows)
    lines = [
        "| operators | ours, µs | torch.compile, µs | copy, µs | times its speed | "
        "share of the copy's bandwidth |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.operators} | {1e6 * row.ours_s:.0f} | {1e6 * row.compiled_s:.0f} | "
        f"{1e6 * row.copy_s:.0f} | {row.ratio:.3f} | {row.share:.1%} |"
        for row in rows
    ]
    ratio, share = mean(row.ratio for row in rows), mean(row.share for row in rows)
    lines.append(
        f"\nGeometric means: {ratio:.3f} times torch.compile's speed (goal {GOALS[0]}), "
        f"{share:.1%} of the copy's bandwidth (goal {GOALS[1]:.0%})."
    )
    return "\n".join(lines)


def main() -> None:
    if not device.has_gpu():
        sys.exit("benchmarks/fusion.py measures on a GPU, and this machine has no GPU.")
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    origin = f"{device.name()}, {versions}. Made by `python -m benchmarks.fusion`."
    text = f"{origin}\n\n{table(rows())}\n"
    print(text)
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
