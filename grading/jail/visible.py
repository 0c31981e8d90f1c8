"""What a worker sees of this machine: files, devices and environment variables."""

import functools
import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from common.paths import LESSONS, ROOT, of_checks

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives",
    "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types",
    "/etc/fonts",
)  # fmt: skip
COUNTERS = ("fs", "kernel")  # of /sys: what others take, by control groups and file systems
# Files of /proc, for when it can't be mounted again. None of them is about another process.
PROC = (
    "cpuinfo", "meminfo", "stat", "filesystems", "version", "loadavg", "uptime",
)  # fmt: skip
OF_CUDA = ("sys", "driver", "devices", "modules")  # more of them, which its driver reads
OF_OTHERS = ("net", "task")  # of a process's own folder: its "net" shows the sockets of others, too
GPU_DEVICES = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dxg")
# No other variable gets in: it could hold a token or a key of the instructor.
ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "TRITON_LIBCUDA_PATH", "NUMBA_CUDA_USE_NVIDIA_BINDING",
)  # fmt: skip


def readable() -> list[str]:
    """The files and folders that a worker may read: the system's, Python's and our own two.

    Never the whole project: it holds the solutions, and perhaps the submissions. Nor the files of
    common/lessons that only checks use.
    """
    python = {sys.prefix, sys.base_prefix, *filter(_has_packages, sys.path)}
    python |= {os.path.realpath(path) for path in python}
    folders = sorted(path for path in map(Path, python) if _adds_no_more_than_python(path))
    return [*SYSTEM, *_sys(), *map(str, [*folders, *_course(), ROOT / "nogpu", ROOT / "grading"])]


def _course() -> Iterator[Path]:
    """The files and folders of common/, without what only checks use."""
    folders, of_checks_alone = list(map(Path, listed())), of_checks()
    packages = {path.parent for path in of_checks_alone if path.parent.name == "expected"}
    left_out = {*folders, *of_checks_alone, *packages}
    for folder in folders:
        yield from (path for path in sorted(folder.iterdir()) if path not in left_out)


@functools.cache
def listed() -> tuple[str, ...]:
    """The folders that are shown in part: Python lists a package's folder to import from it."""
    labs = (path for path in LESSONS.iterdir() if path.is_dir())
    return tuple(map(str, [ROOT / "common", LESSONS, *sorted(labs)]))


def _sys() -> list[str]:
    """The folders of /sys, without those of `COUNTERS`, unless a GPU's driver may need them."""
    names = sorted(os.listdir("/sys")) if os.path.isdir("/sys") else []
    return [f"/sys/{name}" for name in names if has_gpu() or name not in COUNTERS]


def proc() -> list[str]:
    """The files of /proc that a worker may read besides those on itself."""
    names = (*PROC, *OF_CUDA) if has_gpu() else PROC
    return [f"/proc/{name}" for name in names]


def own_proc(pid: int, gpu: bool) -> list[str]:
    """The files of /proc on a worker itself, without those that show others."""
    folder = f"/proc/{pid}"
    if gpu:
        return [folder]
    paths = [f"{folder}/{name}" for name in os.listdir(folder) if name not in OF_OTHERS]
    return [path for path in paths if not os.path.islink(path)]  # "root" leads to all files


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
