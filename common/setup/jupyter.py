"""Opens JupyterLab on one lab: python -m common.setup.jupyter 01 --port 8888."""

import argparse
import errno
import os
import socket
import sys
import webbrowser
from pathlib import Path

from common.paths import LABS

# JupyterLab's settings for the course: no news and no update check, which would cover a lab.
SETTINGS = Path(__file__).resolve().parent / "jupyterlab"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m common.setup.jupyter", description=__doc__)
    parser.add_argument("lab", help="number or name of the lab")
    parser.add_argument("--port", default="8888")
    options = parser.parse_args(arguments)
    command = jupyter_command(
        find_lab(options.lab), free_port(options.port), has_browser(), os.geteuid() == 0
    )
    print("JupyterLab starts; Control-C, twice, ends it.", flush=True)
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
    return [
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={LABS}",
        f"--LabApp.default_url=/lab/tree/{notebook}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--Application.log_level=ERROR",  # the address is still shown
        "--KernelManager.transport_encryption=auto",
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if root else []),
    ]


if __name__ == "__main__":
    main()
