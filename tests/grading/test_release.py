"""What students get: built, proved, and refused if a solution slips in."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from common.checks import obfuscated
from common.paths import ROOT, compared_with, of_checks
from grading import __main__ as command
from grading.source import build, holes, release
from grading.source import labs as lab
from tests.mini_lab import mini_lab

FIRST = lab.names()[0]
SHIPPED = "common/**/*", "nogpu/**/*", "labs/*", "solutions/*.py", "docs/*", "*.md", "Makefile"
pytestmark = pytest.mark.slow(*SHIPPED)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of the first lab alone."""
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, "names", lambda: [FIRST])
        return release.write(folder)


def test_a_release_holds_no_solution_and_no_history(released):
    with zipfile.ZipFile(released) as archive:
        names = [name.partition("/")[2] for name in archive.namelist()]
    assert f"labs/{FIRST}.ipynb" in names and "grading/__main__.py" in names and "Makefile" in names
    assert not [
        name
        for name in names
        if name.startswith(("solutions", "tests", ".git/")) or name.endswith(".pyc")
    ]
    shown = {name for name in release.COPIED if name.startswith(("benchmarks", "docs"))}
    assert {name for name in names if name.startswith(("benchmarks", "docs"))} == shown
    assert not [name for name in names if name.startswith(tuple(release.LEFT_OUT))]


def test_of_the_commands_a_release_has_only_grade(released):
    home = released.parent / release.NAME
    for name, entry in command.COMMANDS.items():
        assert (home / entry.path.relative_to(ROOT)).exists() == (name == "grade"), name
    overview = subprocess.check_output(
        [sys.executable, "-m", "grading", "--help"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home)},
        text=True,
    )
    assert re.findall(r"^  (\w+) ", overview, re.MULTILINE) == ["grade"]


def test_files_are_copied_whole(released):
    home = released.parent / release.NAME
    for path in filter(Path.is_file, home.rglob("*")):
        name = path.relative_to(home)
        if name.parts[0] != "labs":
            ours = {copy: kept for kept, copy in release.RENAMED.items()}.get(str(name), name)
            whole = obfuscated.read(path).encode() if path.suffix == ".py" else path.read_bytes()
            assert whole == (ROOT / ours).read_bytes(), name


def test_what_checks_compare_with_is_sealed_and_works(released):
    home = released.parent / release.NAME
    paths = [home / path.relative_to(ROOT) for path in of_checks()]
    assert paths and not any("def " in path.read_text() for path in paths)
    modules = ", ".join(compared_with())
    subprocess.run([sys.executable, "-c", f"import {modules}"], cwd=home, check=True)


def test_a_student_grades_a_lab_in_it(released, tmp_path):
    home, source = released.parent / release.NAME, lab.read(FIRST)
    notebook = build.read(home / "labs" / f"{FIRST}.ipynb")
    for cell in notebook.cells:
        for exercise in source.exercises:
            if cell.source == exercise.stub:
                cell.source = source.solution[exercise.name]
    nbformat.write(notebook, tmp_path / f"{FIRST}.ipynb")
    run = subprocess.run(
        [sys.executable, "-m", "grading", str(tmp_path / f"{FIRST}.ipynb")],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    held_out = sum(
        check.points for e in source.exercises for check in e.checks if "held-out" in check.tags
    )
    most = sum(e.points for e in source.exercises)
    assert f"{most - held_out}/{most}" in run.stdout, run.stdout + run.stderr
    assert ("your instructor runs it" in " ".join(run.stdout.split())) == bool(held_out)


def test_the_make_targets_in_it_are_the_students(released):
    text = (released.parent / release.NAME / "Makefile").read_text()
    run = subprocess.run(
        ["make", "-n", "grade", "LAB=01"],
        cwd=released.parent / release.NAME,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "-m grading '01'" in run.stdout
    assert "solutions" not in text and "mutants" not in text


def test_a_stripped_source_has_stubs_and_the_same_points():
    mini = mini_lab()
    text = release.stripped(mini)
    again = lab.parse(text, mini.name)
    assert [(e.name, e.points, e.stub) for e in again.exercises] == [
        (e.name, e.points, e.stub) for e in mini.exercises
    ]
    assert [check.limit_s for e in again.exercises for check in e.checks] == [
        check.limit_s for e in mini.exercises for check in e.checks
    ]
    assert (
        "SOLUTION" not in text
        and "double(21)" not in text
        and "self.count += double(1)" not in text
    )


@pytest.mark.parametrize("name", ["labs/notes.txt", "labs/{first}.ipynb", "common/answers.py"])
def test_an_answer_that_slips_in_is_found(released, tmp_path, monkeypatch, name):
    monkeypatch.setattr(lab, "names", lambda: [FIRST])
    copy, source = tmp_path / release.NAME, lab.read(FIRST)
    shutil.copytree(released.parent / release.NAME, copy)
    path = copy / name.format(first=FIRST)
    answer = "\n".join(
        match[2] for match in holes.ANSWER.finditer(source.exercise("reshaped").hole.source)
    )
    if path.suffix == ".ipynb":
        notebook = build.read(path)
        notebook.cells.append(nbformat.v4.new_code_cell(answer))
        nbformat.write(notebook, path)
    else:
        path.write_text(answer)
    with pytest.raises(release.LeakError, match="holds a part of the answer to 01_strides, "):
        release.prove(copy)


def test_no_lab_of_the_course_gives_away_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "_graded", lambda *_: [])  # minutes; proved of the first lab above
    assert release.write(tmp_path).is_file()


def test_what_the_labs_read_and_the_readme_names_is_in_it(released):
    home = released.parent / release.NAME
    read = re.findall(
        r'"benchmarks" / "(.+?)"',
        "".join(path.read_text(encoding="utf-8") for path in (ROOT / "common").rglob("*.py")),
    )
    assert read and all((home / "benchmarks" / name).is_file() for name in read)
    readme = (home / "README.md").read_text(encoding="utf-8")
    assert "make lab LAB=01" in readme
    links = [link for link in re.findall(r"\]\((.+?)\)", readme) if "://" not in link]
    assert all((home / link).exists() for link in links)


def test_strangers_points_and_seeds_are_leaks(released, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "names", lambda: [FIRST])
    copy = tmp_path / release.NAME
    shutil.copytree(released.parent / release.NAME, copy)
    monkeypatch.setattr(
        release, "_graded", lambda *_: [{"exercise": "1.1 x", "points": 1, "status": "passed"}]
    )
    with pytest.raises(release.LeakError, match="an untouched lab got 1 points"):
        release.prove(copy)
    (copy / "common" / "course.seed").write_text("1\n")
    with pytest.raises(release.LeakError, match="common/course.seed: only the instructor may have"):
        release.prove(copy)
    (copy / "solutions").mkdir()
    with pytest.raises(release.LeakError, match="solutions: this does not belong in a release"):
        release.prove(copy)
