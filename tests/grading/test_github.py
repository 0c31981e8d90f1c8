"""GitHub Classroom: clones laid out with the time of the push, and the workflow.

The table is the one that https://github.com/github/gh-classroom writes: gradeCSVHeaders in
cmd/gh-classroom/assignment-grades/assignment_grades.go. The clones' names are those of
cmd/gh-classroom/clone/student-repos/student-repos.go.
"""

import time

import yaml

from grading import __main__ as command
from grading import submissions
from grading.lms import github

HEADER = (  # with the last column of group assignments
    "assignment_name,assignment_url,starter_code_url,github_username,roster_identifier,"
    "student_repository_name,student_repository_url,submission_timestamp,points_awarded,"
    "points_available,group_name\n"
)
ROW = (
    '"lab 01","https://x","https://y","{login}","{who}","{repo}","https://z","{time}","0","10",""\n'
)


def table(tmp_path, *rows):
    path = tmp_path / "grades.csv"
    path.write_text(HEADER + "".join(ROW.format(**row) for row in rows), encoding="utf-8")
    return path


def clone(tmp_path, name, *notebooks, text="{}"):
    for notebook in notebooks:
        path = tmp_path / "clones" / name / notebook
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def collect(tmp_path, path, lab="01", clones="clones"):
    folder = tmp_path / "class"
    arguments = ["github", "collect", lab, str(tmp_path / clones), str(path), str(folder)]
    return command.main(arguments), folder


def test_clones_are_laid_out_with_the_time_of_the_push(tmp_path, monkeypatch, capsys):
    clone(tmp_path, "lab-ada", "labs/01_strides.ipynb", "labs/notes.txt")
    clone(tmp_path, "lab-bob", "01_strides.ipynb")
    clone(tmp_path, "lab-dan", "01_strides.ipynb")
    monkeypatch.setenv("TZ", "America/New_York")  # GitHub's times are in UTC
    time.tzset()
    clone(tmp_path, "lab-eve", "labs/01_strides.ipynb")
    path = table(
        tmp_path,
        {"login": "ada99", "who": "ada", "repo": "org/lab-ada", "time": "2026-11-20T17:58:03Z"},
        {"login": "bob", "who": "", "repo": "lab-bob", "time": "2026-11-20 18:30:00 UTC"},
        {"login": "dan", "who": "dan", "repo": "lab-dan", "time": "2026-11-20 18:30:00"},
        {"login": "cyd", "who": "cyd", "repo": "lab-cyd", "time": ""},
    )
    code, folder = collect(tmp_path, path)
    said = capsys.readouterr().out
    assert code == 0 and "left out: lab-cyd" in said and "left out: lab-eve" in said
    assert said.endswith(f"3 students: {folder}\n")
    due = submissions.deadlines(["2026-11-20T18:00+00:00"])
    found, _ = submissions.find(folder, due)
    assert {(one.student, one.lab, one.late_s) for one in found} == {
        ("ada", "01_strides", 0),
        ("bob", "01_strides", 1800),
        ("dan", "01_strides", 1800),
    }


ADA = {"login": "ada", "who": "ada", "repo": "lab-ada", "time": "2026-11-20T17:58:03Z"}
BOTH = ("labs/01_strides.ipynb", "labs/02_arithmetic_intensity.ipynb")


def test_only_the_assignment_s_lab_is_taken_from_a_clone_of_the_release(tmp_path, capsys):
    clone(tmp_path, "lab-ada", *BOTH, "labs/my lab.ipynb", text="finished")
    code, folder = collect(tmp_path, table(tmp_path, ADA))
    assert code == 0 and "my lab.ipynb (no lab has this name" in capsys.readouterr().out
    clone(tmp_path, "lab-ada", *BOTH, text="untouched")  # the next assignment's clones
    later = table(tmp_path, ADA | {"time": "2026-11-27T17:58:03Z"})
    assert collect(tmp_path, later, "02")[0] == 0
    found = {one.lab: one for one in submissions.find(folder)[0]}
    assert found["01_strides"].path.read_text() == "finished"
    assert found["02_arithmetic_intensity"].time_s - found["01_strides"].time_s == 7 * 86400
    assert collect(tmp_path, later, "03")[0] == 2
    assert "has a notebook of lab 03" in capsys.readouterr().err


def test_another_push_replaces_nothing_silently(tmp_path, capsys):
    clone(tmp_path, "lab-ada", *BOTH, text="first")
    folder = collect(tmp_path, table(tmp_path, ADA))[1]
    path = folder / "ada" / "01_strides.ipynb"
    before = path.stat().st_mtime
    clone(tmp_path, "lab-ada", *BOTH, text="second")
    later = table(tmp_path, ADA | {"time": "2026-11-27T17:58:03Z"})
    assert collect(tmp_path, later)[0] == 0
    assert "there already with other content, and stays" in capsys.readouterr().out
    assert (path.read_text(), path.stat().st_mtime) == ("first", before)
    path.unlink()
    assert collect(tmp_path, later)[0] == 0 and path.read_text() == "second"


def test_a_later_push_of_something_else_makes_nobody_late(tmp_path):
    clone(tmp_path, "lab-ada", *BOTH, text="finished")
    folder = collect(tmp_path, table(tmp_path, ADA))[1]
    before = (folder / "ada" / "01_strides.ipynb").stat().st_mtime
    assert collect(tmp_path, table(tmp_path, ADA | {"time": "2026-11-27T17:58:03Z"}))[0] == 0
    assert (folder / "ada" / "01_strides.ipynb").stat().st_mtime == before


def test_bad_tables_get_one_sentence(tmp_path, capsys):
    good = {"login": "a", "who": "ada", "repo": "r", "time": ""}
    (tmp_path / "clones").mkdir()
    for rows, says in (
        ([good, good], "line 3: ada is there twice"),
        ([good | {"who": "../x"}], "can't be a folder's name"),
        ([good | {"who": "a\0da"}], "can't be a folder's name"),
        ([good | {"repo": "org/.."}], "line 2: '..' can't be a folder's name"),
        ([good | {"time": "noon"}], "'noon' is no time"),
    ):
        assert collect(tmp_path, table(tmp_path, *rows))[0] == 2
        assert says in capsys.readouterr().err
    assert collect(tmp_path, tmp_path / "absent.csv")[0] == 2
    assert "download it from GitHub Classroom" in capsys.readouterr().err
    (tmp_path / "grades.csv").write_text("a,b\n1,2\n")
    assert collect(tmp_path, tmp_path / "grades.csv")[0] == 2
    assert "no column github_username" in capsys.readouterr().err


def test_the_workflow_runs_the_visible_checks(tmp_path):
    assert command.main(["github", "workflow", "2", "--out", str(tmp_path)]) == 0
    workflow = yaml.safe_load((tmp_path / github.WORKFLOW).read_text())
    steps = workflow["jobs"]["checks"]["steps"]
    assert steps[-1]["run"] == "python -m grading 02 --strict"
    assert workflow["permissions"] == {"contents": "read"}
