"""Results on the screen and in files."""

import csv
import io
import json
import os
from dataclasses import asdict

from rich import box
from rich.markup import escape
from rich.table import Table

FIELDS = ["student", "lab", "exercise", "points", "max_points", "status", "message"]
COLOURS = {"passed": "green", "not attempted": "dim", "partly passed": "yellow"}


def rows(student, lab_name, results):
    """One dict an exercise, with the fields of results.json."""
    return [{"student": student, "lab": lab_name, **asdict(result)} for result in results]


def lab_table(lab_name, results):
    """A student's own lab: an exercise a line."""
    table = Table(title=f"Lab {lab_name}", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("exercise", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("what the check says")
    for result in results:
        colour = COLOURS.get(result.status, "red")
        message = "" if result.status in ("passed", "not attempted") else f"  {escape(result.message)}"
        table.add_row(result.exercise, f"{result.points}/{result.max_points}", f"[{colour}]{result.status}[/]{message}")
    table.add_section()
    table.add_row("all", f"{sum(r.points for r in results)}/{sum(r.max_points for r in results)}", "")
    return table


def class_table(all_rows):
    """A class: an exercise a line, with how many passed and the mean of the points."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lab", "exercise", "passed", "mean points"):
        table.add_column(heading, justify="left" if heading in ("lab", "exercise") else "right", no_wrap=True)
    groups = {}
    for row in all_rows:
        groups.setdefault((row["lab"], row["exercise"]), []).append(row)
    for (lab_name, exercise), group in groups.items():
        passed = sum(row["status"] == "passed" for row in group)
        mean = sum(row["points"] for row in group) / len(group)
        table.add_row(lab_name, exercise, f"{passed}/{len(group)}", f"{mean:.1f}/{group[0]['max_points']}")
    return table


def write(all_rows, folder):
    """results.json and results.csv, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "results.json", json.dumps(all_rows, indent=1, ensure_ascii=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in all_rows)
    _replace(folder / "results.csv", text.getvalue())


def _plain(value):
    """Text that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _replace(path, text):
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text, encoding="utf-8", errors="replace", newline="")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
