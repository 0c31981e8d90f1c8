"""GitHub runs the gate on all that pyproject.toml promises, with no right but to read."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from common.paths import ROOT

PATH = ROOT / ".github" / "workflows" / "test.yml"
WORKFLOW = yaml.safe_load(PATH.read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_it_runs_on_every_version_of_python_that_is_promised():
    with open(ROOT / "pyproject.toml", "rb") as file:
        promised = tomllib.load(file)["project"]["requires-python"]
    oldest, beyond = map(int, re.findall(r"3\.(\d+)", promised))
    versions = WORKFLOW["jobs"]["linux"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(oldest, beyond)]


def test_it_runs_the_gate():
    assert {step["run"] for step in STEPS if "run" in step} >= {".ci/run", "make test"}


def test_it_may_only_read_and_knows_no_secret():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in WORKFLOW["jobs"].values())
    assert "secrets." not in PATH.read_text(encoding="utf-8")


def test_its_actions_are_github_s_own_and_pinned_to_a_major_version():
    actions = [step["uses"] for step in STEPS if "uses" in step]
    assert actions and all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions)


@pytest.mark.parametrize("path", PATH.parent.glob("*.yml"), ids=lambda path: path.stem)
def test_actionlint_accepts_it(path):
    if not shutil.which("actionlint"):
        pytest.skip("actionlint is not installed here")
    subprocess.run(["actionlint", path], check=True)
