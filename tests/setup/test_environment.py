"""The environment: which Python is used, when .venv is made, and what is said when that fails."""

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

from common.paths import ROOT
from common.setup import environment

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


def test_what_is_tested_is_the_oldest_of_the_range_and_the_newest_of_the_lock():
    for name in ("torch", "triton", "numba", "jupyterlab"):
        oldest, newest = environment.tested(name)
        (need,) = [need for need in map(Requirement, PROJECT["dependencies"]) if need.name == name]
        assert oldest in need.specifier and newest in need.specifier
        assert f">={oldest}" in str(need.specifier).split(",")
        assert [str(pin.specifier) for pin in lock()[canonicalize_name(name)]] == [f"=={newest}"]


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
    assert str(environment.version_refusal((3, 8, 18))).startswith(
        "Python 3.8.18 is too old: the labs need Python 3.11 or newer"
    )
    assert str(environment.version_refusal((3, 99, 0))).startswith("Python 3.99.0 is too new")
    assert environment.version_refusal((3, 11, 0)) is None


def old_pythons():
    on_path = map(shutil.which, [f"python3.{minor}" for minor in range(6, 11)])
    return [
        path
        for path in [*on_path, *map(str, Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python"))]
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


# .venv: when it is made. Here uv only notes that it was called.


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course that notes installations: .runs has the Python of each, .fail is what uv raises."""
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "stamp")

    class Course:
        root, venv, stamp = tmp_path, tmp_path / ".venv", tmp_path / ".venv" / "stamp"
        packages = venv / "lib" / "python3.11" / "site-packages"
        runs, fail = [], None

        def make(self):
            return environment.environment([("torch", "torch>=2", None)])

    def make_venv(python, has_python):
        course.packages.mkdir(parents=True, exist_ok=True)
        Path(python).parent.mkdir(exist_ok=True)
        if not has_python:
            Path(python).symlink_to(sys.executable)

    def uv_install(python):
        if course.fail:
            raise course.fail
        course.runs.append(python)

    course = Course()
    course.runs.clear()
    monkeypatch.setattr(environment, "make_venv", make_venv)
    monkeypatch.setattr(environment, "uv_install", uv_install)
    return course


def test_the_environment_is_made_once(course, capsys):
    assert course.make() == course.make() == str(course.venv / "bin" / "python")
    assert len(course.runs) == 1
    assert "Making the environment in .venv, once" in capsys.readouterr().err


def test_a_new_lock_updates_the_environment_and_keeps_what_is_in_it(course):
    course.make()
    (course.venv / "mine.txt").write_text("a package of the student's own")
    with open(course.root / "requirements.lock", "a") as file:
        file.write("# changed\n")
    course.make()
    assert len(course.runs) == 2 and (course.venv / "mine.txt").exists()


def test_an_interrupted_installation_is_made_afresh(course):
    course.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        course.make()
    (course.venv / "half-a-package").mkdir()
    course.fail = None
    course.make()
    assert len(course.runs) == 1 and not (course.venv / "half-a-package").exists()


def test_a_failure_before_anything_changed_leaves_the_environment_as_it_was(course):
    course.make()
    before = course.stamp.read_text()
    (course.root / "requirements.lock").write_text(
        "# the student pulled a new lock, and is on a train\n"
    )
    course.fail = SystemExit("no network")
    with pytest.raises(SystemExit, match="no network"):
        course.make()
    assert course.stamp.read_text() == before


def test_a_failure_that_changed_something_leaves_the_environment_unfinished(course, monkeypatch):
    def uv_install(python):
        (course.packages / "half-a-package").mkdir()
        raise SystemExit("the disk is full")

    monkeypatch.setattr(environment, "uv_install", uv_install)
    with pytest.raises(SystemExit, match="the disk is full"):
        course.make()
    assert course.stamp.read_text() == environment.UNFINISHED


def test_an_environment_whose_python_is_gone_is_made_afresh(course):
    course.make()
    (course.venv / "bin/python").unlink()
    (course.venv / "bin/python").symlink_to("/nowhere/python3")
    course.make()
    assert len(course.runs) == 2


def test_a_venv_that_the_student_made_is_filled_not_emptied(course):
    course.venv.mkdir()
    (course.venv / "mine.txt").write_text("")
    course.make()
    assert len(course.runs) == 1 and (course.venv / "mine.txt").exists()


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
        and len(course.runs) == 1
    )


# uv: the settings that it gets, what it shows, and what is said when it fails


@pytest.fixture
def pip_config(tmp_path, monkeypatch):
    """Where to write pip's settings; no others hold."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return tmp_path / "pip.conf"


def uv_variables():
    """The variables that differ from this process's."""
    variables = environment.uv_variables(sys.executable)
    return {name: value for name, value in variables.items() if value != os.environ.get(name)}


def test_uv_gets_pips_settings(pip_config, monkeypatch):
    pip_config.write_text(
        "[global]\nindex-url = https://own.example/simple\nfind-links = /wheels\n    /more\n"
        "cert = /own.pem\nproxy = http://global:3128\n[install]\nproxy = http://install:3128\n"
    )
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{environment.CPU_INDEX} file:///simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "own.example")
    monkeypatch.setenv("PIP_CERT", "/newer.pem")
    got = uv_variables()
    assert {name: got[name] for name in environment.UV_VARIABLES.values() if name in got} == {
        "UV_DEFAULT_INDEX": "https://own.example/simple",
        "UV_INDEX": f"{environment.CPU_INDEX} file:///simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "own.example",
        "ALL_PROXY": "http://install:3128",
        "SSL_CERT_FILE": "/newer.pem",
    }


def test_without_settings_of_pip_uv_gets_only_pips_ways(pip_config, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # not even the machine's own holds
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert set(uv_variables()) == {"UV_COMPILE_BYTECODE", "UV_INDEX_STRATEGY", "UV_SYSTEM_CERTS"}


def test_uv_keeps_nothing_where_it_cannot_write(pip_config, monkeypatch):
    monkeypatch.setattr(environment.os, "access", lambda path, mode: False)
    assert uv_variables()["UV_NO_CACHE"] == "1"


def test_uvs_lines_are_shown_without_the_list_of_packages(capsys):
    script = "print('Downloading torch (842.0MiB)\\n - pip==1\\n + pip==2\\n ~ six==1')"
    environment.run([sys.executable, "-c", script], dict(os.environ))
    environment.run([sys.executable, "-c", "print('what pip and venv say is not shown')"])
    assert capsys.readouterr().err == "Downloading torch (842.0MiB)\n"


# What is said when it cannot be made


def test_a_full_disk_is_reported_before_anything_is_downloaded(course, monkeypatch):
    monkeypatch.setattr(
        environment.shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(int(1e9))
    )
    with pytest.raises(
        SystemExit, match=r"The disk is full: .venv needs 4 to 7 GB, and .* has 1.0 GB free"
    ):
        course.make()
    assert not course.runs


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_reported(course, monkeypatch, number):
    def refuse(self, **options):
        raise OSError(number, os.strerror(number), str(self))  # made up: root may write anywhere

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(
        SystemExit, match="no permission to write in .*copy the course to a folder of your own"
    ):
        course.make()


def test_a_python_without_venv_is_reported(monkeypatch):
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SystemExit, match=r"cannot make environments: .*apt-get install python3\.\d+-venv"
    ):
        environment.make_venv("python", has_python=False)


def test_a_missing_network_is_reported_in_one_sentence(tmp_path, pip_config, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    pip_install = [sys.executable, "-m", "pip", "install", "--target", str(tmp_path / "there")]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        with pytest.raises(
            SystemExit, match="The package index cannot be reached: connect to the network"
        ):
            environment.run([*pip_install, environment.UV])


@pytest.mark.parametrize(
    "output, sentence",
    [
        (
            "ERROR: Could not install: OSError: [Errno 28] No space left on device",
            "The disk is full",
        ),
        ("  cause: failed to write: No space left on device (os error 28)", "The disk is full"),
        ("OSError: [Errno 13] Permission denied: '/opt/x'", "no permission to write"),
        (
            "WARNING: Retrying ... NewConnectionError(...)\n"
            "ERROR: No matching distribution found for uv==0.13.9",
            "cannot be reached",
        ),
        (
            "  cause: client error (Connect)\n  cause: dns error\n"
            "  cause: failed to lookup address information: Name or service not known",
            "cannot be reached",
        ),
        (
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]",
            "certificate is not accepted",
        ),
        (
            "  cause: client error (Connect)\n  cause: invalid peer certificate: UnknownIssuer",
            "certificate is not accepted",
        ),
        (
            "error: No solution found when resolving dependencies\n"
            "  cause: Because there is no version of torch==99 and you require torch==99, ...",
            "there is no version of torch==99",
        ),
        ("ERROR: something new", "The installation failed: ERROR: something new"),
        ("", "there was no message"),
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
