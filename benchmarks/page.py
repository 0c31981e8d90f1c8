"""What a student waits for, in each lab: make bench-page

    benchmarks/page.py [LAB ...]     only these labs

The times are those of the solved notebook. In brackets are the seconds of processors: on a busy
machine the clock's seconds are more than the program's own. The start of JupyterLab is compared
with that of plain JupyterLab, opened in the same browser.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import nbformat
from nbformat import NotebookNode
from rich.console import Console
from rich.table import Table

from benchmarks.grading_speed import GRADE, cost, hand_in
from benchmarks.probe import Times
from common.paths import LABS, ROOT
from common.setup import jupyter
from grading.source import build, labs
from grading.source.labs import Lab

PROBE = "from benchmarks.probe import Probe\n_probe = Probe(get_ipython().events)"
REPORT = "print(_probe.report())"
COLUMNS = (
    "lab",
    "first cell, s (goal 6)",
    "slowest check, s (goal 1)",
    "which",
    "slowest widget, s (goal 0.3)",
    "grading, s (goal 8)",
)


def in_the_kernel(lab: Lab) -> tuple[list[NotebookNode], list[Times], list[Times]]:
    """(the code cells of the solved lab, their times, the times of its widgets' steps)."""
    notebook = build.solution_notebook(lab)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    new = nbformat.v4.new_code_cell
    notebook.cells = [new(PROBE), *cells, new(REPORT)]
    with tempfile.TemporaryDirectory() as folder:
        build.execute(notebook, Path(folder))
    printed = [output.text for output in notebook.cells[-1].outputs if "text" in output]
    report = json.loads("".join(printed))
    return cells, report["cells"][: len(cells)], report["steps"]


def graded(lab: Lab) -> Times:
    """What `make grade` takes for the solved lab."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{lab.name}.ipynb"
        hand_in(lab, lab.solution, path)
        took = cost([*GRADE, path], cwd=ROOT)
    return took.wall_s, took.cpu_s


def row(lab: Lab) -> tuple[str, ...]:
    """A lab's row of the table."""
    cells, times, steps = in_the_kernel(lab)
    checks = [
        (took, cell.source.partition(" (")[0].removeprefix("# ").replace("Check", "check"))
        for cell, took in zip(cells, times, strict=True)
        if "check" in cell.metadata.get("tags", ())
    ]
    slowest, name = max(checks, key=lambda check: check[0][1])
    widget = _both(max(steps, key=lambda step: step[1])) if steps else "none"
    return lab.name, _both(times[0]), _both(slowest), name, widget, _both(graded(lab))


def _both(times: Times) -> str:
    return f"{times[0]:.2f} ({times[1]:.2f})"


def opened(command: list[str], scratch: Path) -> tuple[float, float]:
    """Seconds from a command to the server's address, and on to an idle kernel in the browser."""
    import psutil

    from tests.browser import test_lab_in_browser as browser

    own = {f"JUPYTER_{kind}_DIR": str(scratch / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    log, began_s = scratch / "log", time.perf_counter()
    with log.open("w") as stream, browser.browser_page(scratch) as page:
        began_s = time.perf_counter()
        process = psutil.Popen(
            [sys.executable, *command], stderr=stream, env=jupyter.environment() | own
        )
        try:
            address = browser.address_in(log, process)
            address_s = time.perf_counter() - began_s
            page.goto(address)
            page.wait_for_function(browser.IS_READY)
            return address_s, time.perf_counter() - began_s
        finally:
            process.terminate()
            process.wait()


def opening(name: str, runs: int = 3) -> tuple[str, ...]:
    """Sentences on the start of JupyterLab with a lab open, the course's and a plain one."""
    flags = ["--no-browser", "--ServerApp.port=0", "--LabApp.expose_app_in_browser=True"]
    flags += ["--allow-root"] if os.geteuid() == 0 else []
    notebook = f"{name}.ipynb"
    plain = ["-m", "jupyterlab", f"--ServerApp.root_dir={LABS}", *flags]
    commands = {
        "plain JupyterLab": [*plain, f"--LabApp.default_url=/lab/tree/{notebook}"],
        "make lab": jupyter.jupyter_command(notebook, 0, browser=False, root=os.geteuid() == 0),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(runs):
        for what, command in commands.items():
            with tempfile.TemporaryDirectory() as scratch:
                took = opened(command, Path(scratch))
            best[what] = min(best.get(what, took), took, key=lambda times: times[1])
    step_s = statistics.median(steps_in_browser())
    ratio = best["make lab"][1] / best["plain JupyterLab"][1]
    said = [
        f"{what}: {address_s:.1f} s to the address, {idle_s:.1f} s to an idle kernel"
        for what, (address_s, idle_s) in best.items()
    ]
    said.append(f"make lab takes {ratio:.2f} times as long (goal: 7 s)")
    return *said, f"lab 01's widget, from a key to the new picture: {step_s:.2f} s (goal: 0.3 s)"


def steps_in_browser(count: int = 9) -> list[float]:
    """Seconds from a key on a slider of lab 01's widget to the new picture, in the browser."""
    from tests.browser import test_lab_in_browser as browser

    with tempfile.TemporaryDirectory() as scratch:
        notebook = Path(scratch) / "labs" / f"{browser.LAB.name}.ipynb"
        notebook.parent.mkdir()
        build.write(build.lab_notebook(browser.LAB), notebook)
        with (
            mock.patch.object(jupyter, "LABS", notebook.parent),
            browser.jupyterlab(notebook, Path(scratch)) as address,
            browser.browser_page(Path(scratch)) as page,
        ):
            browser.open_lab(page, address)
            browser.run_all(page)
            browser.move_the_widget(page)
            return [
                browser.step_s(page, "ArrowRight" if step % 2 else "ArrowLeft")
                for step in range(count)
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("labs", nargs="*", help="labs (default: all)")
    chosen = [labs.resolve(word) for word in parser.parse_args().labs] or labs.names()
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(*opening(chosen[0]), sep="\n")
    table = Table(*COLUMNS, title="What a student waits for: seconds (of them processors')")
    for name in chosen:
        table.add_row(*row(labs.read(name)))
    console.print(table)


if __name__ == "__main__":
    main()
