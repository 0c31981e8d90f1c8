"""GitHub Classroom: clones laid out with the time of the push, and the workflow."""

import time

import yaml

from grading import __main__ as command
from grading import submissions
from grading.lms import github

HEADER = (  # as GitHub Classroom writes it, with the last column of group assignments
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


def clone(tmp_path, name, *notebooks):
    for notebook in notebooks:
        path = tmp_path / "clones" / name / notebook
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def collect(tmp_path, path):
    folder = tmp_path / "class"
    arguments = ["github", "collect", str(tmp_path / "clones"), str(path), str(folder)]
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


def test_bad_tables_get_one_sentence(tmp_path, capsys):
    good = {"login": "a", "who": "ada", "repo": "r", "time": ""}
    (tmp_path / "clones").mkdir()
    for rows, says in (
        ([good, good], "line 3: ada is there twice"),
        ([good | {"who": "../x"}], "can't be a folder's name"),
        ([good | {"time": "noon"}], "'noon' is no time"),
    ):
        assert collect(tmp_path, table(tmp_path, *rows))[0] == 2
        assert says in capsys.readouterr().err
    (tmp_path / "grades.csv").write_text("a,b\n1,2\n")
    assert collect(tmp_path, tmp_path / "grades.csv")[0] == 2
    assert "no column github_username" in capsys.readouterr().err


def test_the_workflow_runs_the_visible_checks(tmp_path):
    assert command.main(["github", "workflow", "2", "--out", str(tmp_path)]) == 0
    workflow = yaml.safe_load((tmp_path / github.WORKFLOW).read_text())
    steps = workflow["jobs"]["checks"]["steps"]
    assert steps[-1]["run"] == "python -m grading 02 --strict"
    assert workflow["permissions"] == {"contents": "read"}
