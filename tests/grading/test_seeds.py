"""The course's secret seed: its cases can't be foretold, can be repeated, and reveal nothing."""

import json
import re

import pytest

from common import files
from grading import __main__ as command
from grading import seeds
from grading.source import labs as lab
from tests.grading.test_classroom import hand_in

FIRST = lab.names()[0]
REPORTING = (
    lab.read(FIRST).solution["reshaped"]
    + """
right, seen = reshaped, []
def reshaped(*case):
    seen.append(case)
    if len(seen) > 30:  # one case, of few that there are, may be equal for two seeds
        code = 0
        for letter in str(seen).encode():
            code = (31 * code + letter) % (1 << 61)
        raise ValueError(f"cases {code}")
    return right(*case)"""
)


def test_a_secret_is_drawn_once_and_for_its_owner(tmp_path):
    path = tmp_path / "course.seed"
    assert seeds.secret(path) == seeds.secret(path) == int(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [path]
    assert seeds.secret(tmp_path / "other") != seeds.secret(path)


def test_of_two_graders_that_draw_at_once_both_take_the_same(tmp_path, monkeypatch):
    path, link = tmp_path / "course.seed", files.os.link

    def later(new, path):
        path.write_text("77\n")  # the other's, in the meantime
        link(new, path)

    monkeypatch.setattr(files.os, "link", later)
    assert seeds.secret(path) == 77 and list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_links_keeps_a_secret_too(tmp_path, monkeypatch):
    def none(new, path):
        raise PermissionError

    monkeypatch.setattr(files.os, "link", none)
    assert seeds.secret(tmp_path / "seed") == int((tmp_path / "seed").read_text())


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5"])
def test_a_file_that_is_not_a_secret_stays_as_it_is(tmp_path, text):
    (tmp_path / "seed").write_text(text)
    with pytest.raises(seeds.SeedError, match="one number of 0 or more"):
        seeds.secret(tmp_path / "seed")
    assert (tmp_path / "seed").read_text() == text


def test_each_lab_has_a_seed_of_its_own():
    drawn = {seeds.of(secret, name) for secret in (1, 2) for name in lab.names()}
    assert len(drawn) == 2 * len(lab.names()) and seeds.of(1, FIRST) == 3265665623220400389


def graded(submissions, out, *options):
    """An exercise's random cases, as an answer that got them reports them."""
    assert (
        command.main(
            [str(submissions), "--out", str(out), "--unsafe", "--jobs", "1", *map(str, options)]
        )
        == 0
    )
    message = next(
        row["message"]
        for row in json.loads((out / "results.json").read_text())
        if "reshaped" in row["exercise"]
    )
    match = re.search(r"cases \d+", message)
    assert match
    return match[0]


@pytest.mark.slow
def test_cases_follow_from_the_seed_file_alone(tmp_path):
    hand_in(tmp_path / "class" / "ada" / f"{FIRST}.ipynb", {"reshaped": REPORTING})
    secret = tmp_path / "course.seed"
    first = graded(tmp_path / "class", tmp_path / "one", "--seed-file", secret)
    assert graded(tmp_path / "class", tmp_path / "two", "--seed-file", secret) == first
    others = {
        graded(tmp_path / "class", tmp_path / "three"),
        graded(tmp_path / "class", tmp_path / "four", "--seed", 0),
    }
    assert len(others - {first}) == 2
    written = "".join(path.read_text() for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert (
        str(seeds.secret(secret)) not in written
        and str(seeds.of(seeds.secret(secret), FIRST)) not in written
    )


def test_bad_input_gets_one_sentence(tmp_path, capsys):
    hand_in(tmp_path / "class" / "ada" / f"{FIRST}.ipynb")
    (tmp_path / "soon").write_text("soon")
    for options in (
        ["--seed", "1", "--seed-file", "x"],
        ["--seed-file", str(tmp_path / "soon")],
        ["--seed-file", str(tmp_path / "no" / "x")],
    ):
        assert (
            command.main(
                [str(tmp_path / "class"), "--out", str(tmp_path / "out"), "--unsafe", *options]
            )
            == 2
        )
    assert len(capsys.readouterr().err.strip().splitlines()) == 3
