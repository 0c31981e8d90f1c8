"""What a notebook can ask of the course: which file it is, to be saved, and to be graded."""

import html
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.notebook import check_display, notebook_file
from common.paths import ROOT

SAVE = "globalThis.jupyterapp?.commands.execute('docmanager:save')"  # of the page `make lab` opens
SAVE_WITHIN_S = 3.0
TICKS = {"passed": "✓", "visible checks passed": "✓", "partly passed": "✓", "not attempted": "–"}
COLOURS = {
    "passed": check_display.GREEN,
    "visible checks passed": check_display.GREEN,
    "not attempted": "opacity: 0.6",
}
WRONG = "color: var(--jp-error-color1, #c62828)"


def lab() -> str:
    """The number of the lab in this notebook, "01"; "" if it is unknown."""
    path = notebook_file.notebook()
    return path.name[:2] if path and path.name[:2].isdecimal() else ""


def grade() -> None:
    """Save this notebook, grade it, and show the points of each exercise."""
    from IPython.display import HTML, clear_output, display

    path = notebook_file.notebook()
    if path is None:
        print(
            "This notebook's file is unknown: save it, then type make grade LAB=01 in a terminal."
        )
        return
    is_saved = _save(path)
    clear_output()
    print(f"Grading {path.name} takes about ten seconds ...", flush=True)
    rows, problem = _graded(path)
    clear_output(wait=True)
    if problem:
        print(problem)
        return
    if not is_saved:
        print(
            f"{path.name} has changes that are not saved. Press Ctrl+S, then run this cell again."
        )
    display(HTML(_table(path, rows)))


def _save(path: Path) -> bool:
    """Ask the page to save the notebook; return whether what was run is in the file."""
    from IPython.display import Javascript, display

    here = notebook_file.shell()
    executed = here.user_ns["In"] if here else []
    before, deadline = path.stat().st_mtime_ns, time.monotonic() + SAVE_WITHIN_S
    display(Javascript(SAVE))
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if path.stat().st_mtime_ns != before and not unsaved(path, executed):
            return True
    return not unsaved(path, executed)


def unsaved(path: Path, executed: Sequence[str]) -> list[str]:
    """The names whose latest definition was run, but is not in the notebook's file.

    executed: the texts of the cells that were run, in this order. Only names that some cell of the
    file defines count: a student may try things out in cells that are gone. A file that is just
    being written counts as not saved.
    """
    try:
        saved = {text.strip() for text in notebook_file.texts(path)}
    except ValueError:
        return [path.name]
    known = {name for text in saved for name in notebook_file.defined(text)}
    latest = {name: text.strip() for text in executed for name in notebook_file.defined(text)}
    return sorted(name for name in known & set(latest) if latest[name] not in saved)


def _graded(path: Path) -> tuple[list[dict[str, Any]], str]:
    """A row per exercise and ""; or no rows, and the grader's last line, which says why."""
    with tempfile.TemporaryDirectory() as out:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        grading = subprocess.run(
            [sys.executable, "-m", "grading", str(path), "--out", out],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        results = Path(out) / "results.json"
        if grading.returncode or not results.is_file():
            return [], (grading.stderr.strip() or "The grader gave no result.").splitlines()[-1]
        return json.loads(results.read_text(encoding="utf-8")), ""


def _table(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """The results as a page's table, with a tick for each exercise that passed."""
    lines = []
    for row in rows:
        status = row["status"]
        style, tick = COLOURS.get(status, WRONG), TICKS.get(status, "✗")
        quiet = status in ("passed", "not attempted")
        says = "" if quiet else html.escape(row["message"]).replace("\n", "<br>")
        lines.append(
            f'<tr><td style="{style}; text-align: left"><b>{tick} {html.escape(row["exercise"])}'
            f"</b></td><td>{row['points']}/{row['max_points']}</td>"
            f'<td style="text-align: left">{status}{says and "<br>"}{says}</td></tr>'
        )
    points, most = (sum(row[key] for row in rows) for key in ("points", "max_points"))
    lines.append(f"<tr><td style='text-align: left'>all</td><td>{points}/{most}</td><td></td></tr>")
    saved = f"{path.name}, saved {time.strftime('%H:%M:%S', time.localtime(path.stat().st_mtime))}"
    head = "<tr><th>exercise</th><th>points</th><th>what the check says</th></tr>"
    return f"<table><caption>{html.escape(saved)}</caption>{head}{''.join(lines)}</table>"
