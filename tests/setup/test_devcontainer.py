"""The container that gives a Mac all labs: its files fit the course, and each wheel exists."""

import json
import re
import shutil
import subprocess

import pytest

from common.paths import ROOT
from common.setup import environment

FOLDER = ROOT / ".devcontainer"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
ONLY_SOURCE = "yattag"  # a test's need; plain Python, so that it builds everywhere


def test_the_container_is_made_of_the_lock_and_of_the_course_s_uv():
    container = json.loads((FOLDER / "devcontainer.json").read_text(encoding="utf-8"))
    assert (FOLDER / container["build"]["dockerfile"]).is_file()
    assert (FOLDER / container["build"]["context"]).resolve() == ROOT
    assert environment.UV in DOCKERFILE and environment.CPU_INDEX in DOCKERFILE
    assert container["forwardPorts"] == [int(re.findall(r"EXPOSE (\d+)", DOCKERFILE)[0])]
    for copied in re.findall(r"^COPY (\S+)", DOCKERFILE, re.MULTILINE):
        assert (ROOT / copied).exists()


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28"])
def test_every_pinned_wheel_exists_for_this_platform(platform, tmp_path):
    if not shutil.which("uv"):
        pytest.skip("there is no uv here: pip install uv")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = [line for line in lock.splitlines() if not line.startswith(f"{ONLY_SOURCE}==")]
    (tmp_path / "lock.txt").write_text("\n".join(pins))
    command = ["uv", "--no-config", "pip", "install", "--dry-run", "--no-deps", "--only-binary"]
    command += [":all:", "--python-version", "3.12", "--python-platform", platform]
    command += ["--target", str(tmp_path / "none"), "-r", str(tmp_path / "lock.txt")]
    resolved = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if re.search("[Cc]onnect|client error|timed out|dns", resolved.stderr):
        pytest.skip("the package index can't be reached")
    assert resolved.returncode == 0, resolved.stderr
    assert "triton==" in resolved.stderr and "torch==" in resolved.stderr
