"""Google Colab's cell: in a bare Python without the course, it makes a lab run.

With COURSE_DOWNLOADS=1 it may download the packages (3 GB). Otherwise it takes them from uv's
cache, and is skipped where they are not there.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from common.paths import ROOT
from common.setup import colab, environment
from grading.source import build, holes, labs

LIKE_COLAB = "3.12"
FETCHED = ("common", "nogpu", "grading", "pyproject.toml", "requirements.lock")
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for text in json.load(open(sys.argv[1])):
    shell.run_cell(text).raise_error()
"""


@pytest.fixture(scope="module")
def uv():
    """How to call uv, and its environment variables."""
    if not importlib.util.find_spec("uv"):
        pytest.skip("there is no uv here: pip install uv")
    own = environment.uv_variables(sys.executable) | {"UV_COMPILE_BYTECODE": "0"}
    own.pop("PYTHONPATH", None)
    return [sys.executable, "-m", "uv", "--no-config"], own


@pytest.fixture(scope="module")
def bare(uv, tmp_path_factory):
    """A Python like Colab's, with a kernel and no package of the course."""
    command, own = uv
    folder = tmp_path_factory.mktemp("bare")
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{LIKE_COLAB}.*/bin/python3"))
    for version in (LIKE_COLAB, *pyenv, sys.executable):
        made = [*command, "venv", "--no-python-downloads", "--python", version, folder, "--clear"]
        if not subprocess.run(made, env=own, capture_output=True).returncode:
            break
    python = folder / "bin" / "python"
    version = environment.version_of(str(python)) or ()
    if environment.dotted(version[:2]) != LIKE_COLAB:
        warnings.warn(f"tried with {environment.dotted(version)}, not {LIKE_COLAB}", stacklevel=1)
    wanted = ["pip", "ipykernel", "packaging"]
    pip = [*command, "pip", "install", "--python", python, *wanted]
    installed = subprocess.run(pip, env=own, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"a kernel can't be installed: {installed.stderr.splitlines()[-1:]}")
    return python


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A repository of the course, at the address that the cell has."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in FETCHED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", folder]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the course"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(environment, "repository", folder.as_uri)


def cells_of_a_lab():
    """The code of lab 01 up to its first check, whose exercise is solved."""
    lab = labs.read("01")
    exercise = lab.exercises[0]
    for cell in build.lab_notebook(lab).cells:
        if cell.cell_type == "code":
            is_hole = cell.source == exercise.stub
            yield holes.solved(exercise.hole.source) if is_hole else cell.source
            if cell.source.endswith(exercise.checks[0].source):
                return


def run(python, texts, folder, own):
    """Run cells as Colab would, in this folder."""
    folder.mkdir()
    (folder / "cells.json").write_text(json.dumps(texts))
    own = own | {"COLAB_RELEASE_TAG": "test", "IPYTHONDIR": str(folder), "MPLBACKEND": "agg"}
    if not os.environ.get("COURSE_DOWNLOADS"):
        own["UV_OFFLINE"] = "1"
    command = [python, "-c", RUN, "cells.json"]
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=900)


@pytest.mark.slow("requirements.lock", "pyproject.toml")
def test_the_cell_makes_a_lab_run_in_a_bare_python(uv, bare, course, tmp_path):
    texts = [*cells_of_a_lab()]
    assert texts[0] == colab.cell() and len(texts) > 5
    ran = run(bare, texts, tmp_path / "content", uv[1])
    said = (ran.stdout + ran.stderr).lower()
    if "offline" in said or "network was disabled" in said:
        pytest.skip("the packages are not in uv's cache: COURSE_DOWNLOADS=1 downloads 3 GB")
    if "package index cannot be reached" in ran.stdout + ran.stderr:
        pytest.skip("the package index can't be reached")
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert "row_major_strides agrees with PyTorch on 100 shapes" in ran.stdout


def test_without_the_course_another_kernel_gets_a_sentence(bare, uv, tmp_path):
    text = colab.cell().replace("COLAB_RELEASE_TAG", "NOT_COLAB")
    ran = run(bare, [text], tmp_path / "elsewhere", uv[1])
    assert "no course here: start make lab" in ran.stdout + ran.stderr


def test_the_cell_asks_for_the_address_where_none_is_configured(bare, uv, monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "repository", str)
    ran = run(bare, [colab.cell()], tmp_path / "content", uv[1])
    assert "Write the address of the course's repository" in ran.stdout + ran.stderr


def test_the_cell_does_nothing_where_the_course_is():
    exec(colab.cell(), {})
