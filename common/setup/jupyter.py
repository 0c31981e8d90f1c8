"""Opens JupyterLab on one lab: python -m common.setup.jupyter 01 --port 8888."""

import argparse
import contextlib
import errno
import os
import shutil
import socket
import sys
import webbrowser
from pathlib import Path

from common.paths import LABS

# JupyterLab's settings for the course: the labs' page, their workspace and their terminals.
SETTINGS = Path(__file__).resolve().parent / "jupyterlab"
WORKSPACE = "default-37a8.jupyterlab-workspace"  # JupyterLab's own name of the file


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m common.setup.jupyter", description=__doc__)
    parser.add_argument("lab", help="number or name of the lab")
    parser.add_argument("--port", default="8888")
    options = parser.parse_args(arguments)
    command = jupyter_command(
        find_lab(options.lab), free_port(options.port), has_browser(), os.geteuid() == 0
    )
    keep_workspace()
    print("JupyterLab starts, in about five seconds; Control-C, twice, ends it.", flush=True)
    os.execve(sys.executable, [sys.executable, *command], environment())  # noqa: S606  (Python)


def environment() -> dict[str, str]:
    """This process's variables, with the course's settings for JupyterLab after the student's own.

    The kernel is this Python, even if the student has installed another kernel named python3.
    """
    paths = [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS)]
    return {
        **os.environ,
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths)),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "COURSE_PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
    }


def find_lab(wanted: str) -> str:
    """The lab's notebook in labs/, by its number or name; exits with the choices if none fits."""
    names = [path.stem for path in sorted(LABS.glob("[0-9][0-9]_*.ipynb")) if "." not in path.stem]
    if not names:
        raise SystemExit(f"There is no lab in {LABS}: make labs builds them.")
    for name in names:
        if wanted.removesuffix(".ipynb") in (name, name[:2], name[:2].lstrip("0"), name[3:]):
            return name + ".ipynb"
    allowed = ", ".join(f"{name[:2]} ({name[3:]})" for name in names)
    raise SystemExit(f"There is no lab {wanted!r}: LAB is one of {allowed}.")


def free_port(text: str) -> int:
    """The port as an int; exits with what to do if it is not a port or is in use."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise SystemExit(
            f"{text!r} is not a port: PORT is a number from 1 to 65535, as in make lab PORT=8889"
        )
    port = int(text)
    for family, kind, _, _, address in socket.getaddrinfo(
        "localhost", port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, kind) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(address)
            except OSError as error:
                refuse_port(port, error.errno)
    return port


def refuse_port(port: int, error: int | None) -> None:
    """Exits if the port cannot be used. JupyterLab reports any other problem with an address."""
    if error == errno.EADDRINUSE:
        sys.exit(f"Port {port} is in use: run the same command with PORT={port % 65535 + 1}")
    if error == errno.EACCES:
        sys.exit(f"Port {port} belongs to the system: run the same command with PORT=8889")


def workspaces() -> Path:
    """The folder with the arrangement of this student's JupyterLab: open tabs, side bars."""
    return LABS / ".jupyterlab"


def keep_workspace() -> None:
    """Give a new student the course's arrangement, with the table of contents open."""
    path = workspaces() / WORKSPACE
    with contextlib.suppress(OSError):  # without it, JupyterLab opens with its own arrangement
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SETTINGS / WORKSPACE, path)


def terminal() -> list[str] | None:
    """The command of JupyterLab's terminals; None where there is no bash: JupyterLab's own choice.

    The student's start files may put another Python first (pyenv, conda, /etc/profile of a login
    shell). So this shell reads one file only, ours.
    """
    bash = shutil.which("bash")
    return [bash, "--noprofile", "--rcfile", str(SETTINGS / "terminal.sh"), "-i"] if bash else None


def has_browser() -> bool:
    """Whether a browser can open a window here."""
    if sys.platform == "linux" and not any(
        map(os.environ.get, ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"])
    ):
        return False
    try:
        return bool(webbrowser.get())
    except webbrowser.Error:
        return False


def jupyter_command(notebook: str, port: int, browser: bool, root: bool) -> list[str]:
    """The arguments with which Python starts JupyterLab in labs/ with this notebook open."""
    shell = terminal()
    return [
        "-m",
        "common.setup.server",
        f"--ServerApp.root_dir={LABS}",
        f"--LabApp.default_url=/lab/tree/{notebook}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--Application.log_level=ERROR",  # the address is still shown
        "--ServerApp.log_format=%(message)s",  # without a head that looks like an error's
        "--KernelManager.transport_encryption=auto",
        f"--LabApp.workspaces_dir={workspaces()}",
        f"--LabApp.extra_labextensions_path={SETTINGS / 'labextensions'}",  # saves, one at a time
        "--LabApp.custom_css=True",  # SETTINGS/custom.css
        f"--ServerApp.tornado_settings={{'static_custom_path': ['{SETTINGS}']}}",
        "--LabApp.expose_app_in_browser=True",  # course.grade() asks the page to save
        *([f"--ServerApp.terminado_settings={{'shell_command': {shell}}}"] if shell else []),
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if root else []),
    ]


if __name__ == "__main__":
    main()
