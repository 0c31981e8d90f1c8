"""GitHub runs the gate on all that pyproject.toml promises, with no right but to read."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from common.paths import ROOT
from grading.source import labs

FOLDER = ROOT / ".github" / "workflows"
TEST, NIGHTLY = (
    yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    for name in ("test.yml", "nightly.yml")
)
JOBS = TEST["jobs"]
FULL = "3.12"  # the version of Python on which a push runs everything


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def versions(job):
    """The versions of Python of a job."""
    python = next(s["with"]["python-version"] for s in job["steps"] if "setup-python" in str(s))
    if "matrix" not in python:
        return {python}
    matrix = job["strategy"]["matrix"]
    return {*matrix["python"], *(each["python"] for each in matrix.get("include", ()))}


def promised():
    """The versions of Python that pyproject.toml promises."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        needed = tomllib.load(file)["project"]["requires-python"]
    oldest, beyond = map(int, re.findall(r"3\.(\d+)", needed))
    return {f"3.{minor}" for minor in range(oldest, beyond)}


def test_a_push_tries_every_version_of_python_and_a_night_tries_everything_on_each():
    assert set.union(*map(versions, JOBS.values())) == promised()
    everything = NIGHTLY["jobs"]["everything"]
    assert set(everything["strategy"]["matrix"]["python"]) == promised()
    assert commands(everything) == ["make ${{ matrix.target }}"]


def test_a_push_has_one_full_gate():
    """A job per lab, all other tests but those of the sandbox and the browser, and these."""
    assert versions(JOBS["lab"]) == versions(JOBS["course"]) == versions(JOBS["sandbox"]) == {FULL}
    assert JOBS["lab"]["strategy"]["matrix"]["lab"] == [name[:2] for name in labs.names()]
    assert commands(JOBS["lab"]) == ["make test LAB=${{ matrix.lab }}"]
    (rest,) = commands(JOBS["course"])
    assert rest.startswith("make test-all ") and "make test-all" in (ROOT / ".ci/run").read_text()
    left_out = re.findall(r"--ignore=(\S+)", rest.replace('"', " "))
    assert left_out == ["tests/labs/test_labs.py", "tests/browser"]
    assert ".ci/run sandbox" in commands(JOBS["sandbox"])


def test_known_answers_run_on_one_version_of_python_alone():
    left_out = re.findall(r"not (\w+)", JOBS["others"]["env"]["PYTEST_ADDOPTS"])
    text = (ROOT / "tests" / "labs" / "test_labs.py").read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    left = [test for test in tests if not any(word in test for word in left_out)]
    assert all(any(word in test for test in tests) for word in left_out), left_out
    assert FULL not in versions(JOBS["others"]) and any("solution" in test for test in left)


@pytest.mark.parametrize("workflow", [TEST, NIGHTLY], ids=["test", "nightly"])
def test_it_may_only_read_and_knows_no_secret(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    assert "secrets." not in yaml.safe_dump(workflow)


@pytest.mark.parametrize("workflow", [TEST, NIGHTLY], ids=["test", "nightly"])
def test_its_actions_are_github_s_own_and_pinned_to_a_major_version(workflow):
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions and all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_actionlint_accepts_it(path):
    if not shutil.which("actionlint"):
        pytest.skip("actionlint is not installed here")
    subprocess.run(["actionlint", path], check=True)
