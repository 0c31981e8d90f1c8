"""make lab: the lab that is opened, the port, and a machine without a screen."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.setup import jupyter


@pytest.fixture
def labs(tmp_path, monkeypatch):
    monkeypatch.setattr(jupyter, "LABS", tmp_path)
    for name in ["01_strides", "12_data_parallel", "01_strides.backup-1", "notes"]:
        (tmp_path / f"{name}.ipynb").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("wanted", ["01", "1", "strides", "01_strides", "01_strides.ipynb"])
def test_a_lab_is_known_by_number_and_name(labs, wanted):
    assert jupyter.find_lab(wanted) == "01_strides.ipynb"


@pytest.mark.parametrize("wanted", ["13", "stride", "", "../01_strides"])
def test_an_unknown_lab_is_refused_with_those_that_are_there(labs, wanted):
    with pytest.raises(
        SystemExit,
        match=r"There is no lab '.*': LAB is one of 01 \(strides\), 12 \(data_parallel\)\.$",
    ):
        jupyter.find_lab(wanted)


def test_an_empty_folder_is_reported(labs):
    for path in labs.iterdir():
        path.unlink()
    with pytest.raises(SystemExit, match="make labs builds them"):
        jupyter.find_lab("01")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_reported_with_the_fix(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        server.listen()
        port = server.getsockname()[1]
        if (host, port) not in {
            address[:2] for *_, address in socket.getaddrinfo("localhost", port)
        }:
            pytest.skip(f"localhost is not {host} here")
        with pytest.raises(
            SystemExit, match=f"^Port {port} is in use: run the same command with PORT={port + 1}$"
        ):
            jupyter.free_port(str(port))


@pytest.mark.parametrize("text", ["", "eighty", "0", "65536", "-1", "8888.0"])
def test_a_text_that_is_not_a_port_is_refused(text):
    with pytest.raises(SystemExit, match="is not a port: PORT is a number from 1 to 65535"):
        jupyter.free_port(text)


def test_a_machine_without_a_screen_gets_no_browser(monkeypatch):
    for name in ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jupyter.sys, "platform", "linux")
    assert not jupyter.has_browser()


def test_the_kernel_is_this_python_s_also_where_the_student_has_another(tmp_path):
    """Another kernel named python3, as python -m ipykernel install --user leaves it."""
    if not Path(sys.prefix, "share", "jupyter", "kernels", "python3").exists():
        pytest.skip(f"the Python in {sys.prefix} has no Jupyter kernel of its own")
    own = tmp_path / "kernels" / "python3"
    own.mkdir(parents=True)
    (own / "kernel.json").write_text(
        '{"argv": ["/other/python"], "display_name": "other", "language": "python"}'
    )
    script = (
        "from jupyter_client.kernelspec import get_kernel_spec\n"
        "print(get_kernel_spec('python3').argv[0])"
    )
    variables = jupyter.environment() | {"JUPYTER_DATA_DIR": str(tmp_path)}
    assert (
        subprocess.check_output([sys.executable, "-c", script], env=variables, text=True)
        != "/other/python\n"
    )
    variables["JUPYTER_PREFER_ENV_PATH"] = "0"
    assert (
        subprocess.check_output([sys.executable, "-c", script], env=variables, text=True)
        == "/other/python\n"
    )


def test_flags_are_given_only_where_they_are_needed():
    assert {"--no-browser", "--allow-root"} <= set(
        jupyter.jupyter_command("01_strides.ipynb", 8888, browser=False, root=True)
    )
    assert not {"--no-browser", "--allow-root"} & set(
        jupyter.jupyter_command("01_strides.ipynb", 8888, browser=True, root=False)
    )


def test_jupyterlab_starts_and_shows_the_address_with_its_token(tmp_path):
    pytest.importorskip("jupyterlab")
    shown = dict(
        os.environ, HOME=str(tmp_path), JUPYTER_RUNTIME_DIR=str(tmp_path), PYTHONUNBUFFERED="1"
    )
    command = jupyter.jupyter_command(
        "01_strides.ipynb", 0, browser=False, root=True
    )  # 0: any free port
    with subprocess.Popen(
        [sys.executable, *command], env=shown, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = []
        for line in process.stderr or ():
            lines.append(line)
            if "token=" in line and "http://" in line:
                break
        process.kill()
    assert re.search(r":[1-9]\d+/lab/tree/01_strides\.ipynb\?token=", "".join(lines[-1:])), "".join(
        lines
    )


def test_the_server_builds_no_grammar_of_addresses():
    """Half of JupyterLab's start would go into it: see common/setup/server.py."""
    script = (
        "import sys, common.setup.server\n"
        "print('jupyterlab.labapp' in sys.modules, 'lark' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert said == "True False\n"
