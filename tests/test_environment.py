"""The environment: which Python is taken, when .venv is made, and what is said when it cannot be."""

import errno
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from common.setup import environment

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lock():
    """{name: [Requirement]} of requirements.lock."""
    pins = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    return pins


# The three lists


def test_lock_pins_all_that_pyproject_needs_within_its_ranges():
    pins = lock()
    for need in map(Requirement, environment.requirements(test=True)):
        assert canonicalize_name(need.name) in pins, (
            f"{need.name} is not in requirements.lock: make lock"
        )
        for pin in pins[canonicalize_name(need.name)]:
            (exact,) = pin.specifier
            assert exact.operator == "==" and need.specifier.contains(exact.version), (
                f"{pin} is outside {need}: make lock"
            )
            if need.marker:
                assert pin.marker and not pin.marker.evaluate({"sys_platform": "darwin"}), (
                    f"{pin} must be for {need.marker}"
                )


def test_lock_pins_each_package_exactly_and_names_no_index():
    for name, pins in lock().items():
        assert all([s.operator for s in pin.specifier] == ["=="] and not pin.url for pin in pins), (
            name
        )
    assert "--" not in (ROOT / "requirements.lock").read_text().replace("# ", "")


def test_lock_leaves_the_cuda_build_of_torch_to_itself():
    assert not {
        name for name in lock() if name.startswith(("nvidia-cublas", "nvidia-cudnn", "nvidia-nccl"))
    }


def test_pyproject_admits_the_oldest_versions_tried_and_refuses_numpy_2_5():
    ranges = {need.name: need.specifier for need in map(Requirement, PROJECT["dependencies"])}
    for name, version in {
        "torch": "2.11.0",
        "triton": "3.6.0",
        "numba": "0.68.0",
        "numpy": "2.4.0",
    }.items():
        assert version in ranges[name], f"{name} {version}"
    assert "2.5.0" not in ranges["numpy"]


def test_pyproject_and_environment_agree_on_python():
    allowed = SpecifierSet(PROJECT["requires-python"])
    for minor in range(6, 20):
        assert (f"3.{minor}.1" in allowed) == (
            environment.version_refusal((3, minor, 1)) is None
        ), f"3.{minor}"


def test_environment_yml_installs_the_lock():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert conda["name"] == PROJECT["name"]
    (pip,) = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert pip == ["-r requirements.lock", "-e ."]
    python = next(entry for entry in conda["dependencies"] if str(entry).startswith("python="))
    assert python.removeprefix("python=") + ".1" in SpecifierSet(PROJECT["requires-python"])


# Which Python


def test_an_old_python_is_refused_in_one_sentence():
    assert environment.version_refusal((3, 8, 18)).startswith(
        "Python 3.8.18 is too old: the labs need Python 3.11 or newer"
    )
    assert environment.version_refusal((3, 99, 0)).startswith("Python 3.99.0 is too new")
    assert environment.version_refusal((3, 11, 0)) is None


def old_pythons():
    found = map(shutil.which, [f"python3.{minor}" for minor in range(6, 11)])
    return [
        path
        for path in [*found, *map(str, Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python"))]
        if path and environment.version_of(path)
    ]


def test_a_real_old_python_says_the_same(tmp_path):
    pythons = old_pythons()
    if not pythons:
        pytest.skip("there is no Python from 3.6 to 3.10 on this machine")
    for python in pythons:
        result = subprocess.run(
            [python, str(ROOT / "common/setup/environment.py"), "-c", "1"],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert (
            result.returncode == 1 and "too old" in result.stderr and result.stderr.count("\n") == 1
        ), result.stderr


def test_an_old_python_hands_over_to_a_newer_one_on_path(tmp_path, monkeypatch, capsys):
    for name, body in {
        "python3.13": "exit 127",
        "python3.12": "echo 3 12 4",
    }.items():  # the first is a shim that fails
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    started = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        environment.os, "execv", lambda path, arguments: started.append(path) or sys.exit()
    )
    monkeypatch.setattr(
        environment, "sys", namedtuple("OldSys", "version_info stderr")((3, 8, 18), sys.stderr)
    )
    with pytest.raises(SystemExit):
        environment.use_supported_python([])
    assert started == [str(tmp_path / "python3.12")]
    assert "Python 3.8.18 is too old" in capsys.readouterr().err


def test_a_python_built_without_a_library_is_refused(monkeypatch):
    environment.require_complete_python()
    find = environment.importlib.util.find_spec
    monkeypatch.setattr(
        environment.importlib.util,
        "find_spec",
        lambda name: None if name == "_lzma" else find(name),
    )
    with pytest.raises(SystemExit, match="was built without lzma: install"):
        environment.require_complete_python()


def test_unmet_names_what_is_missing_and_what_is_outside_its_range():
    needs = [
        "pytest>=1",
        "pytest>=99",
        "there-is-no-such-package>=1",
        "pytest>=99; sys_platform == 'nowhere'",
    ]
    assert environment.unmet(needs) == [
        ("pytest", "pytest>=99", pytest.__version__),
        ("there-is-no-such-package", "there-is-no-such-package>=1", None),
    ]


def test_a_python_that_has_all_is_used_as_it_is():
    if environment.unmet(environment.requirements(test=False)):
        pytest.skip("the tests run in a Python that lacks some of what the labs need")
    script = (
        "import sys, common, os; print(sys.executable, os.environ['PATH'].split(os.pathsep)[0])"
    )
    output = subprocess.check_output(
        [sys.executable, str(ROOT / "common/setup/environment.py"), "-c", script],
        cwd="/",
        text=True,
    )
    assert output.split() == [sys.executable, os.path.dirname(sys.executable)]


# .venv: when it is made. Here pip only notes that it was called.


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course whose installations are noted, not made: .runs are pip's arguments, .fail what pip raises."""
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "stamp")

    class Course:
        root, venv, stamp, runs, fail = (
            tmp_path,
            tmp_path / ".venv",
            tmp_path / ".venv" / "stamp",
            [],
            None,
        )

        def make(self):
            return environment.environment([("torch", "torch>=2", None)])

    def make_venv(python, version):
        Path(python).parent.mkdir(exist_ok=True)
        if not version:
            Path(python).symlink_to(sys.executable)

    def pip_install(python, *arguments):
        if course.fail:
            raise course.fail
        course.runs.append(arguments[0])

    course = Course()
    course.runs.clear()
    monkeypatch.setattr(environment, "make_venv", make_venv)
    monkeypatch.setattr(environment, "pip_install", pip_install)
    return course


COMPLETE = ["-r", "--no-deps"]


def test_the_environment_is_made_once(course, capsys):
    assert course.make() == course.make() == str(course.venv / "bin" / "python")
    assert course.runs == COMPLETE
    assert "Making the environment in .venv, once" in capsys.readouterr().err


def test_a_new_lock_updates_the_environment_and_keeps_what_is_in_it(course):
    course.make()
    (course.venv / "mine.txt").write_text("a package of the student's own")
    with open(course.root / "requirements.lock", "a") as file:
        file.write("# changed\n")
    course.make()
    assert course.runs == 2 * COMPLETE and (course.venv / "mine.txt").exists()


def test_an_interrupted_installation_is_made_afresh(course):
    course.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        course.make()
    (course.venv / "half-a-package").mkdir()
    course.fail = None
    course.make()
    assert course.runs == COMPLETE and not (course.venv / "half-a-package").exists()


def test_a_failure_before_anything_changed_leaves_the_environment_as_it_was(course):
    course.make()
    before = course.stamp.read_text()
    (course.root / "requirements.lock").write_text(
        "# the student pulled a new lock, and is on a train\n"
    )
    course.fail = environment.NothingInstalled("no network")
    with pytest.raises(SystemExit, match="no network"):
        course.make()
    assert course.stamp.read_text() == before


def test_an_environment_whose_python_is_gone_is_made_afresh(course):
    course.make()
    (course.venv / "bin/python").unlink()
    (course.venv / "bin/python").symlink_to("/nowhere/python3")
    course.make()
    assert course.runs == 2 * COMPLETE


def test_a_venv_of_ones_own_is_filled_not_emptied(course):
    course.venv.mkdir()
    (course.venv / "mine.txt").write_text("")
    course.make()
    assert course.runs == COMPLETE and (course.venv / "mine.txt").exists()


def test_a_venv_of_an_old_python_is_left_alone(course, monkeypatch):
    course.venv.mkdir()
    (course.venv / "mine.txt").write_text("")
    monkeypatch.setattr(environment, "version_of", lambda python: (3, 8, 18))
    with pytest.raises(SystemExit, match=r"Python 3.8.18 is too old.*move .venv away"):
        course.make()
    assert not course.runs and (course.venv / "mine.txt").exists()


def test_two_makes_do_not_install_at_once(course, monkeypatch):
    course.venv.mkdir()
    said = []

    def say(text):
        said.append((text, list(course.runs)))
        fcntl.flock(other, fcntl.LOCK_UN)

    monkeypatch.setattr(environment, "say", say)
    with open(course.stamp, "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        course.make()
    assert (
        said[0] == ("Another make is installing into .venv: waiting for it.", [])
        and course.runs == COMPLETE
    )


# What is said when it cannot be made


def test_a_full_disk_is_told_before_anything_is_downloaded(course, monkeypatch):
    monkeypatch.setattr(
        environment.shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(int(1e9))
    )
    with pytest.raises(
        SystemExit, match=r"The disk is full: .venv needs 3 to 6 GB, and .* has 1.0 GB free"
    ):
        course.make()
    assert not course.runs


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_told(course, monkeypatch, number):
    def refuse(self, **options):
        raise OSError(number, os.strerror(number), str(self))  # made up: root may write anywhere

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(
        SystemExit, match="no permission to write in .*copy the course to a folder of your own"
    ):
        course.make()


def test_a_python_without_venv_is_told(monkeypatch):
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SystemExit, match=r"cannot make environments: .*apt-get install python3\.\d+-venv"
    ):
        environment.make_venv("python", None)


def test_a_missing_network_is_told_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "VENV", tmp_path)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        with pytest.raises(
            environment.NothingInstalled,
            match="The package index cannot be reached: connect to the network",
        ):
            environment.pip_install(
                sys.executable, "--target", str(tmp_path / "there"), "greenlet==3.5.6"
            )


@pytest.mark.parametrize(
    "output, sentence",
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "The disk is full",
        ),
        ("OSError: [Errno 13] Permission denied: '/opt/x'", "no permission to write"),
        (
            "WARNING: Retrying ... NewConnectionError(...)\nERROR: No matching distribution found for torch==2.13.0",
            "cannot be reached",
        ),
        (
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]",
            "certificate is not accepted",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0",
            "has no torch==2.13.0 for Python 3",
        ),
        ("ERROR: something new", "The installation failed: ERROR: something new"),
        ("", "it said nothing"),
    ],
)
def test_what_failed_is_one_sentence(output, sentence):
    assert sentence in environment.reason(output) and "\n" not in environment.reason(output)


# The front door


def test_import_common_imports_nothing_else():
    """That is what makes it fast; its seconds are the machine's."""
    script = (
        "import sys; before = set(sys.modules); import common; print(*set(sys.modules) - before)"
    )
    assert (
        subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True) == "common\n"
    )


def test_make_help_lists_every_target():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    output = subprocess.check_output(["make", "help"], cwd=ROOT, text=True)
    assert "lab" in targets and all(f"make {target} " in output for target in targets)
