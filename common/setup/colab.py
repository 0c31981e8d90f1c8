"""Google Colab: the first cell of each lab fetches the course there, and installs what is missing.

Everywhere else the course is there already, and the cell does nothing.
"""

import re
import sys

from common.paths import ROOT
from common.setup import environment

OF_THE_PAGE = {"jupyterlab", "ipykernel"}  # Colab has its own, which must stay as they are
CELL = """\
# COLAB: run me first in Google Colab, it takes two minutes; elsewhere I do nothing
import importlib.util, os, subprocess, sys

COURSE = "{address}"  # the address of the course's repository, for git
if importlib.util.find_spec("common") is None:
    if "COLAB_RELEASE_TAG" not in os.environ:
        raise ModuleNotFoundError("no course here: start make lab, or choose the kernel .venv")
    assert COURSE, "Write the address of the course's repository between the quotes of COURSE."
    if not os.path.isdir("course"):
        subprocess.run(["git", "clone", "--quiet", "--depth=1", COURSE, "course"], check=True)
    sys.path.insert(0, os.path.abspath("course"))
    from common.setup import colab

    colab.install()"""


def cell() -> str:
    """The cell's text, with the address that pyproject.toml gives as the project's repository."""
    return CELL.format(address=environment.repository())


def install() -> None:
    """Install what this Python lacks for the labs, in the tested versions."""
    needs = {_name(need): need for need in environment.requirements(test=False)}
    lacking = {name for name, _, _ in environment.unmet([*needs.values()])} - OF_THE_PAGE
    if not lacking:
        return
    uv = [sys.executable, "-m", "uv", "--no-config", "pip", "install", "--python", sys.executable]
    environment.run([sys.executable, "-m", "pip", "install", "-q", environment.UV])
    environment.run(
        [*uv, "-c", str(ROOT / "requirements.lock"), *(needs[name] for name in sorted(lacking))],
        environment.uv_variables(sys.executable) | {"UV_COMPILE_BYTECODE": "0"},
    )
    if loaded := sorted(lacking & set(sys.modules)):
        print(f"{', '.join(loaded)}: a new version. Restart the session, then run this cell again.")


def _name(need: str) -> str:
    return re.split(r"[^\w-]", need)[0]
