"""Gradescope: results.json, and the zip of its autograder, run as there but for the container."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from grading import __main__ as command
from grading import classroom, seeds
from grading.lms import gradescope
from grading.report import Result
from grading.source import build, notebook
from grading.source import labs as lab
from grading.submissions import Submission

FIRST = lab.names()[0]
LAB = lab.read(FIRST)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """/autograder, with the zip unpacked."""
    home = tmp_path_factory.mktemp("autograder")
    gradescope.write_zip(FIRST, home / "autograder.zip", seed=5, unsafe=True)
    with zipfile.ZipFile(home / "autograder.zip") as archive:
        archive.extractall(home / "source")
    (home / "results").mkdir()
    return home


def run(home, **notebooks):
    """What the autograder makes of these notebooks, {name: cells edited by a function}."""
    shutil.rmtree(home / "submission", ignore_errors=True)
    (home / "submission").mkdir()
    for name, edit in notebooks.items():
        built = build.lab_notebook(LAB.filled(LAB.solution))
        edit(built)
        nbformat.write(built, home / "submission" / f"{name}.ipynb")
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-m", "grading", "gradescope", "grade", "--home", str(home)],
        cwd=home / "source",
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((home / "results" / "results.json").read_text())


def test_the_zip_holds_what_it_takes_and_no_other_lab(home):
    with zipfile.ZipFile(home / "autograder.zip") as archive:
        names = archive.namelist()
        modes = {
            name: archive.getinfo(name).external_attr >> 16
            for name in ("setup.sh", "run_autograder")
        }
    assert {
        "setup.sh",
        "run_autograder",
        "requirements.lock",
        f"solutions/{FIRST}.py",
        "grading/__main__.py",
    } <= set(names)
    assert [name for name in names if name.startswith("solutions/")] == [f"solutions/{FIRST}.py"]
    assert set(modes.values()) == {0o755}
    for name in modes:
        assert subprocess.run(["bash", "-n", home / "source" / name]).returncode == 0  # noqa: PLW1510


@pytest.mark.slow
def test_a_submission_by_any_name_is_graded(home):
    def wrong(built):
        cell = next(cell for cell in built.cells if "def broadcasted(" in cell.source)
        cell.source = "def broadcasted(view, shape):\n    return 1797"

    shown = run(home, my_homework=wrong)
    assert shown["score"] == sum(e.points for e in LAB.exercises) - 1
    assert [test["max_score"] for test in shown["tests"]] == [e.points for e in LAB.exercises]
    wrong_one = shown["tests"][-2]
    assert (wrong_one["number"], wrong_one["name"], wrong_one["status"]) == (
        "6.1",
        "broadcasted",
        "failed",
    ) and "1797" in wrong_one["output"]
    assert all(
        test["output_format"] == "text" and test["visibility"] == "visible"
        for test in shown["tests"]
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_byte_order_mark_costs_nothing(tmp_path, encoding):
    text = nbformat.writes(build.lab_notebook(LAB.filled(LAB.solution)))
    (tmp_path / "a.ipynb").write_text(text, encoding=encoding)
    assert notebook.lab_of(tmp_path / "a.ipynb") == LAB.name
    assert all(
        answer.attempted for answer in notebook.read_answers(LAB, tmp_path / "a.ipynb").values()
    )


@pytest.mark.slow
def test_a_missing_notebook_is_reported(home):
    assert "there is no notebook" in run(home)["output"]
    shown = run(home, one=lambda built: None, two=lambda built: None)
    assert shown["score"] == 0 and "one.ipynb, two.ipynb" in shown["output"]


def test_results_are_in_gradescope_s_form():
    results = [Result("1.1 x", 1, 2, "partly passed", "<b>no</b>")]
    submission = Submission("ada", FIRST, Path("none.ipynb"))
    shown = gradescope.results(classroom.Graded(submission, LAB, results))
    assert shown["score"] == 1 and shown["output_format"] == "text"
    (test,) = shown["tests"]
    assert test == {
        "number": "1.1",
        "name": "x",
        "score": 1,
        "max_score": 2,
        "status": "failed",
        "output": "partly passed: <b>no</b>",
        "output_format": "text",
        "name_format": "text",
        "visibility": "visible",
    }


def test_the_cases_there_are_those_of_the_class(tmp_path, capsys):
    """A zip file holds the seed that grading a class uses for its lab, and no other seed."""
    arguments = [
        "gradescope",
        "zip",
        FIRST,
        "--out",
        str(tmp_path / "a.zip"),
        "--seed-file",
        str(tmp_path / "course.seed"),
    ]
    assert command.main(arguments) == 0
    secret = seeds.secret(tmp_path / "course.seed")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        settings = archive.read(gradescope.SETTINGS).decode()
    assert json.loads(settings)["seed"] == seeds.of(secret, FIRST) and str(secret) not in settings
    (tmp_path / "course.seed").write_text("soon\n")
    assert command.main(arguments) == 2
    assert "holds no seed" in capsys.readouterr().err


def test_bad_input_gets_one_sentence(tmp_path, capsys):
    assert command.main(["gradescope", "zip", "99"]) == 2
    assert command.main(["gradescope", "grade", "--home", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2
    assert command.main(["gradescope", "zip", "01", "--out", str(tmp_path / "none" / "a.zip")]) == 2
    assert f"there is no folder {tmp_path / 'none'}\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["01_Strides.ipynb", "01_STRIDES.IPYNB", "mine.IPYNB"])
def test_capitals_in_a_notebook_s_name_change_nothing(tmp_path, name):
    (tmp_path / name).write_text("{}")
    assert gradescope._submitted(tmp_path, FIRST).name == name
