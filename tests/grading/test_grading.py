"""The command line of the grader, as an instructor and a student meet it."""

import csv
import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from common import files
from common.paths import ROOT
from grading import __main__ as command
from grading import classroom, report
from grading import grade as grading_command
from grading.course import changes
from grading.score import Result
from grading.source import build
from grading.source import labs as lab
from tests import processes

FIRST = lab.names()[0]


def notebook(path, fill=True, edit=None):
    """A submission of the first lab: solved, or untouched; edit changes its cells."""
    first = lab.read(FIRST)
    built = build.lab_notebook(first.filled(first.solution) if fill else first)
    if edit:
        edit(built)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(built, path)
    return path


def grade(*arguments):
    """The command; of a class with no jail, which tests/security/test_jail.py looks at."""
    if "--out" in arguments:
        arguments = (*arguments, "--unsafe")
    return subprocess.run(
        [sys.executable, "-m", "grading", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def a_class(tmp_path_factory):
    """A class of odd submissions, graded once."""
    folder = tmp_path_factory.mktemp("class")
    first = lab.read(FIRST).exercises[0].name

    def loop(built):
        cell = next(cell for cell in built.cells if f"def {first}(" in cell.source)
        cell.source = f"import os; os._exit(1)\ndef {first}(*args):\n    return args"

    notebook(folder / "ada" / f"{FIRST}.ipynb")
    notebook(folder / "bob" / f"{FIRST}.ipynb", fill=False)
    notebook(folder / "cyd" / f"{FIRST}-Copy1.ipynb", edit=loop)
    notebook(folder / "dan" / f"{FIRST}.ipynb", edit=lambda built: built.cells.clear())
    (folder / "eve").mkdir()
    (folder / "eve" / f"{FIRST}.ipynb").write_bytes(b"\x00\xff")
    notebook(folder / "=fay" / f"{FIRST}.ipynb", edit=lambda built: built.cells.reverse())
    (folder / "=fay" / "notes.ipynb").write_text("{}")
    run = grade(folder, "--out", folder / "out")
    assert run.returncode == 0, run.stderr
    return folder / "out", run.stdout


def of(rows, student):
    return [row for row in rows if row["student"] == student]


@pytest.mark.slow
def test_a_class_is_graded_each_with_their_reason(a_class):
    out, screen = a_class
    rows = json.loads((out / "results.json").read_text())
    assert [set(row) for row in rows] == [set(report.FIELDS)] * len(rows)
    exercises = len(lab.read(FIRST).exercises)
    assert len(rows) == 6 * exercises
    for student in ("ada", "=fay"):
        assert all(row["points"] == row["max_points"] for row in of(rows, student))
    assert {row["status"] for row in of(rows, "bob")} == {"not attempted"}
    assert of(rows, "cyd")[0]["status"] == "died" and of(rows, "cyd")[-1]["points"] > 0
    assert {row["status"] for row in of(rows, "dan")} == {"missing"}
    assert all("is not a notebook" in row["message"] for row in of(rows, "eve"))
    assert "left out:" in screen and "notes.ipynb" in screen


@pytest.mark.slow
def test_the_csv_holds_the_same_and_no_formula(a_class):
    out, _ = a_class
    with (out / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    rows = json.loads((out / "results.json").read_text())
    assert [int(row["points"]) for row in table] == [row["points"] for row in rows]
    assert "'=fay" in {row["student"] for row in table}


@pytest.mark.slow
def test_your_own_lab_gets_one_line_per_exercise(tmp_path):
    run = grade(notebook(tmp_path / "my work.IPYNB", fill=False))  # its title says which lab
    assert run.returncode == 0, run.stderr
    for exercise in lab.read(FIRST).exercises:
        assert f"{exercise.number} {exercise.name}" in run.stdout
    assert "not attempted" in run.stdout


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["99"], "there is no lab '99': the labs are 01_strides"),
        ([""], "there is no lab ''"),
        (["nowhere/"], "no such folder or notebook"),
        (
            ["nowhere/01_strides.ipynb"],
            "there is no notebook nowhere/01_strides.ipynb: give its path, or a lab (01)",
        ),
        (["nowhere.ipynb"], "no such folder or notebook"),
        (["{notes}"], "notes.ipynb: neither its name nor its title says which lab it is"),
        (["{empty}", "--out", "{out}"], "holds no submission: they are"),
        (["{empty}"], "say where the results go (--out RESULTS)"),
        (["{empty}", "--out", "{file}"], "is a file: give a folder"),
        (["01", "--jobs", "0"], "--jobs takes 1 or more"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path, arguments, says):
    places = {"empty": tmp_path / "empty", "out": tmp_path / "out", "file": tmp_path / "file"}
    places["empty"].mkdir()
    places["file"].write_text("")
    places["notes"] = tmp_path / "notes.ipynb"
    places["notes"].write_text(json.dumps({"nbformat": 4, "cells": []}))
    run = grade(*[argument.format(**places) for argument in arguments])
    assert run.returncode == 2
    assert (
        says in run.stderr
        and len(run.stderr.strip().splitlines()) == 1
        and "Traceback" not in run.stderr
    )


def test_results_that_can_not_be_written_are_reported(tmp_path, monkeypatch, capsys):
    def full(rows, out):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write", full)
    path = notebook(tmp_path / f"{FIRST}.ipynb", fill=False)
    assert command.main([str(path), "--out", str(tmp_path)]) == 2
    assert "can't be written" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", '{"a": 1}', '[{"a": 1}]', "[1]"])
def test_damaged_results_get_a_sentence(tmp_path, capsys, text):
    (tmp_path / "results.json").write_text(text)
    assert command.main(["canvas", "marks", str(tmp_path)]) == 2
    assert "is not as the grader wrote it: grade again" in capsys.readouterr().err
    assert changes.read(tmp_path) == []


def test_who_stops_a_run_reads_that_it_goes_on_later(monkeypatch, capsys):
    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(grading_command, "run", stopped)
    assert command.main([FIRST]) == 130
    said = capsys.readouterr().err
    assert said == "grading: stopped; give the same command again, and it keeps what is done\n"


def test_a_terminal_without_a_name_s_letters_gets_them_in_another_way(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "grading", "王小明"],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        text=True,
    )
    assert r"there is no lab '\u738b" in run.stderr and "Traceback" not in run.stderr


@pytest.mark.slow
def test_a_process_that_dies_does_not_stop_the_class():
    done = dict(classroom.each(processes.dies_on_bob, ["ada", "bob", "cyd"], 2, [FIRST]))
    assert done == {"ada": "ADA", "bob": None, "cyd": "CYD"}


def test_a_write_that_fails_keeps_the_old_results(tmp_path, monkeypatch):
    rows = report.rows("ada", FIRST, [Result("1.1 x", 1, 1, "passed")])
    report.write(rows, tmp_path)
    old = (tmp_path / "results.json").read_text()
    monkeypatch.setattr(
        "os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError):
        report.write(rows * 2, tmp_path)
    assert (tmp_path / "results.json").read_text() == old and len(list(tmp_path.iterdir())) == 2


def test_two_graders_may_write_one_file(tmp_path, monkeypatch):
    with files.whole(tmp_path / "x") as ours:
        ours.write_text("ours")
        monkeypatch.setattr(files.os, "getpid", lambda: 7)
        files.replace(tmp_path / "x", "theirs")
    assert (tmp_path / "x").read_text() == "ours" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_submissions_are_never_changed(a_class, tmp_path):
    path = notebook(tmp_path / "ada" / f"{FIRST}.ipynb")
    before = path.read_bytes()
    assert grade(tmp_path, "--out", tmp_path / "out").returncode == 0
    assert path.read_bytes() == before
    shutil.rmtree(tmp_path / "out")
