"""What a GPU counts of your own kernels, next to what the simulator counts: make counters LAB=03.

    python -m common.hardware.ncu_comparison 03

It takes the answers of your notebook in labs/, and of each kernel the largest launch that the lab's
checks count. Nsight Compute (`ncu`) watches the same launch on the GPU. For lab 03 the simulator's
counts stand beside the GPU's; for labs in Triton, those of the compiled kernel (report.compiled).
"""

import argparse
import contextlib
import io
import json
import operator
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import matplotlib
import numpy as np
import torch

from common.hardware import device, ncu
from common.paths import LABS, ROOT
from nogpu import simt, tiles
from nogpu.kernels import linecache_text

KEPT_BYTES = 1 << 28  # of a launch's arrays
TAGS = {"setup", "driver", "hole", "check"}
LANGUAGES = {"simt": ncu.SIMT, "tiles": ncu.TILES}
REASON = {
    "simt": "The simulator counts the kernel as written. Where a GPU counts less, its compiler has "
    "merged neighbouring accesses, or kept a number in a register.",
    "tiles": "We count what Triton compiles here. Where a GPU counts otherwise, its assembler has "
    "merged accesses, or another Triton compiled the kernel.",
}


@dataclass
class Launch:
    """A launch that a check counted. figures: {name in the table: our count}."""

    kernel: str
    language: str
    grid: Any
    block: Any
    arguments: list[Any]
    constants: dict[str, Any]
    report: Any = field(default=None, repr=False)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Requests, by which the largest launch of a kernel is found."""
        report = self.report
        if self.language == "simt":
            return report.global_loads.requests + report.global_stores.requests
        return report.loads.sectors + report.stores.sectors

    def count(self) -> bool:
        """Fills in the figures; False if the compiled kernel has none (the copy engine's tiles)."""
        try:
            whole = self.report if self.language == "simt" else self.report.compiled
        except tiles.KernelError:
            return False
        self.figures = {
            name: sum(operator.attrgetter(path)(whole) for path in paths)
            for name, (paths, _) in LANGUAGES[self.language].items()
        }
        self.report = None  # the GPU's process gets the rest
        return True


def missing() -> str:
    """What this machine lacks, in a sentence, or ""."""
    if not device.has_gpu():
        return "make counters needs an NVIDIA GPU: it compares our counts with the hardware's."
    if ncu.tool() is None:
        return "make counters needs Nsight Compute's `ncu`; it comes with the CUDA toolkit."
    return ""


def own_notebook(word: str) -> Path:
    """The notebook that a word means: its path, or a lab's number or name."""
    if Path(word).suffix == ".ipynb":
        found = [Path(word)] if Path(word).is_file() else []
    else:
        found = [*LABS.glob(f"{word.zfill(2)}_*.ipynb"), *LABS.glob(f"[0-9][0-9]_{word}.ipynb")]
    if not found:
        sys.exit(f"There is no notebook {word!r}; give a lab's number, as make counters LAB=03.")
    return found[0]


def cells(path: Path) -> list[tuple[str, str]]:
    """(tag, text) of the cells of a notebook that set up, drive, answer or check."""
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        tags = TAGS & set(cell["metadata"].get("tags", ()))
        found += [(tag, "".join(cell["source"])) for tag in tags]
    return found


def executed(found: list[tuple[str, str]]) -> dict[str, Any]:
    """{name: value} of all that these cells define, but for the checks."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, (tag, text) in enumerate(found):
        if tag != "check":
            _execute(f"<cell {number}>", text, names)
    return names


def _execute(file: str, text: str, names: dict[str, Any]) -> None:
    """Runs a cell in these names. What it prints is not shown, and an error ends it alone."""
    linecache_text.remember(file, text)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        exec(compile(text, file, "exec"), names)  # noqa: S102 - as in the notebook


def counted(found: list[tuple[str, str]]) -> list[Launch]:
    """Of each kernel of these cells, the largest launch that the checks count."""
    launches: dict[str, Launch] = {}

    def keep(launch: Launch) -> None:
        before = launches.get(launch.kernel)
        if before is None or launch.size > before.size:
            launches[launch.kernel] = launch

    names = executed(found)
    with _recorded(names, keep):
        for number, (tag, text) in enumerate(found):
            if tag == "check":
                names["rng"] = np.random.default_rng(number)
                _execute(f"<check {number}>", text, dict(names))
    return [launch for launch in launches.values() if launch.count()]


@contextlib.contextmanager
def _recorded(names: dict[str, Any], keep: Callable[[Launch], None]) -> Iterator[None]:
    """In it, each launch that is counted is also kept, with what its arrays held before."""

    def recorder(language: str, module: ModuleType) -> Callable[..., Any]:
        count = module.count

        def recorded(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> Any:
            name = next((name for name, value in names.items() if value is kernel), "")
            name = "" if "emitted" in constants else name
            grid = grid(constants) if callable(grid) else grid
            given, block = list(arguments), None
            if language == "simt":
                block, *given = given
            else:
                constants.setdefault("capability", _capability())
            given = [_copy(each) for each in given]
            report = count(kernel, grid, *arguments, **constants)
            size = sum(each.nbytes for each in given if hasattr(each, "nbytes"))
            if name and size <= KEPT_BYTES:
                keep(Launch(name, language, grid, block, given, constants, report))
            return report

        return recorded

    with (
        mock.patch.object(simt, "count", recorder("simt", simt)),
        mock.patch.object(tiles, "count", recorder("tiles", tiles)),
    ):
        yield


def _capability() -> int:
    major, minor = device.compute_capability()
    return 10 * major + minor or 90


def _copy(thing: Any) -> Any:
    """An array or tensor that begins where the given one does in its storage."""
    if torch.is_tensor(thing):
        return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own
    return thing.copy() if isinstance(thing, np.ndarray) else thing


def launch_on_the_gpu(path: Path, launches: list[Launch]) -> None:
    """What ncu watches: each launch once, on copies of the arrays that the check gave it."""
    names = executed(cells(path))
    for launch in launches:
        kernel: Any = names[launch.kernel]
        _run(kernel, launch)  # and it compiles
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        _run(kernel, launch)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _run(kernel: Any, launch: Launch) -> None:
    if launch.language == "simt":
        from nogpu import cuda

        on_gpu: Any = cuda.to_device
        given = [on_gpu(x) if isinstance(x, np.ndarray) else x for x in launch.arguments]
        kernel[launch.grid, launch.block, 0, launch.constants.get("shared_bytes", 0)](*given)
        return
    ours = "capability", "seed", "compiled"
    constants = {name: each for name, each in launch.constants.items() if name not in ours}
    kernel[launch.grid](*map(_on_gpu, launch.arguments), **constants)


def _on_gpu(thing: Any) -> Any:
    """A tensor's copy on the GPU, with its place in its storage: that decides its alignment."""
    if not torch.is_tensor(thing):
        return thing
    storage: Any = thing.untyped_storage().cuda()
    empty = torch.empty(0, dtype=thing.dtype, device="cuda")
    return empty.set_(storage, thing.storage_offset(), thing.size(), thing.stride())


def measured(path: Path, launches: list[Launch]) -> list[dict[str, float]]:
    """{metric: value} of each launch, as ncu says."""
    metrics = {
        metric
        for launch in launches
        for _, names in LANGUAGES[launch.language].values()
        for metric in names
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "launches"
        file.write_bytes(pickle.dumps(launches))
        program = [
            sys.executable,
            "-m",
            "common.hardware.ncu_comparison",
            str(path),
            "--launch",
            str(file),
        ]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        text, printed, _ = ncu.profiled(
            ncu.tool() or "ncu", sorted(metrics), program, os.environ | {"PYTHONPATH": paths}
        )
    if "ERR_NVGPUCTRPERM" in text + printed:
        sys.exit(ncu.FORBIDDEN)
    found = [values for _, values in ncu.parsed(text, metrics)]
    if len(found) != len(launches):
        sys.exit(
            f"ncu shows {len(found)} kernels, and {len(launches)} were launched: {printed[-800:]}"
        )
    return found


def table(launches: list[Launch], hardware: list[dict[str, float]]) -> str:
    """Our counts and the GPU's, a line each, and why they may differ."""
    lines = [f"{'kernel':28}{'counter':26}{'ours':>12}{'GPU':>12}"]
    for launch, values in zip(launches, hardware, strict=True):
        for counter, (_, metrics) in LANGUAGES[launch.language].items():
            ours, theirs = launch.figures[counter], ncu.added(values, metrics)
            if not ours and not theirs:
                continue
            shown = "unknown" if theirs is None else f"{theirs:,}"
            differs = "" if theirs in (None, ours) else "  differs"
            lines.append(f"{launch.kernel:28}{counter:26}{ours:>12,}{shown:>12}{differs}")
    languages = {launch.language for launch in launches}
    if any(line.endswith("differs") for line in lines):
        lines += ["", *(REASON[language] for language in sorted(languages))]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lab", help="a lab's number or name, or a notebook")
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if lacking := missing():
        sys.exit(lacking)
    path = own_notebook(options.lab)
    matplotlib.use("agg")
    if options.launch:
        launch_on_the_gpu(path, pickle.loads(options.launch.read_bytes()))  # noqa: S301 - ours
        return
    launches = counted(cells(path))
    if not launches:
        sys.exit(f"The checks of {path.name} count no kernel that you have written.")
    print(table(launches, measured(path, launches)))


if __name__ == "__main__":
    main()
