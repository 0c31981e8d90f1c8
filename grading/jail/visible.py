"""What a worker sees of this machine: files, devices and environment variables."""

import glob
import os
import sys
from pathlib import Path

from common.paths import ROOT

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives",
    "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types",
    "/etc/fonts", "/sys",
)  # fmt: skip
# Files of /proc, for when it can't be mounted again. None of them is about another process.
PROC = (
    "cpuinfo", "meminfo", "stat", "filesystems", "version", "loadavg", "uptime", "sys", "driver",
    "devices", "modules",
)  # fmt: skip
OF_CHECKS = ("oracles", "clinics")  # folders of common/ with expected values and wrong programs
LISTED = (str(ROOT / "common"),)  # Python lists a package's folder to import from it
GPU_DEVICES = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dxg")
# No other variable gets in: it could hold a token or a key of the instructor.
ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "TRITON_LIBCUDA_PATH", "NUMBA_CUDA_USE_NVIDIA_BINDING",
)  # fmt: skip


def readable() -> list[str]:
    """The files and folders that a worker may read: the system's, Python's and our own two.

    Never the whole project: it holds the solutions, and perhaps the submissions. Nor the parts of
    common/ that only checks use.
    """
    python = {sys.prefix, sys.base_prefix, *filter(_has_packages, sys.path)}
    python |= {os.path.realpath(path) for path in python}
    folders = sorted(path for path in map(Path, python) if _adds_no_more_than_python(path))
    common = sorted(path for path in (ROOT / "common").iterdir() if path.name not in OF_CHECKS)
    return [*SYSTEM, *map(str, [*folders, *common, ROOT / "grading"])]


def _has_packages(path: str) -> bool:
    """Whether this entry of sys.path holds packages; the current folder may hold anything."""
    named = path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = os.path.basename(path) in ("site-packages", "dist-packages")
    return os.path.isdir(path) and (named or installed)


def _adds_no_more_than_python(path: Path) -> bool:
    """Whether this folder is neither the project, nor around it, nor in SYSTEM already."""
    in_system = path.is_relative_to("/usr") or path.is_relative_to("/lib")
    return not ROOT.is_relative_to(path) and not in_system


def scratch_folder() -> str:
    """The folder that a worker writes in, on a file system of its own: it hides what was there."""
    in_use = any(Path(path).is_relative_to("/tmp") for path in readable())  # noqa: S108 (a question)
    return "/scratch" if in_use else "/tmp"  # noqa: S108 (a fresh, empty file system)


def devices() -> list[str]:
    """The device files of GPUs."""
    paths = (path for pattern in GPU_DEVICES for path in glob.glob(pattern))
    return sorted(path for path in paths if not os.path.isdir(path))


def has_gpu() -> bool:
    return bool(devices())


def environment() -> dict[str, str]:
    """The environment variables of what runs in a sandbox."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return kept | {"USER": "worker", "LOGNAME": "worker", "MPLBACKEND": "agg"}
