"""Runs a command in a Python that has what the labs need: the given one, or .venv, made once.

    python3 common/setup/environment.py -m common.setup.jupyter 01
    python3 common/setup/environment.py --test -m pytest        (--test: also what the tests need)

pip installs uv, and uv installs the packages. This file uses only the standard library and syntax
of Python 3.6 (hence the quoted annotations), so that an old Python can say that it is too old.
"""

import ast
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "ml-systems-labs.stamp"
UNFINISHED = "installing"  # what the stamp says during an installation
OLDEST, NEWEST = (3, 11), (3, 14)  # as pyproject's requires-python
SIZE_GB, CPU_SIZE_GB = 7, 4  # .venv on Linux: 6.9 with PyTorch's CUDA build, 3.6 with its CPU build
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
UV = "uv==0.13.9"
UV_VARIABLES = {  # of pip's settings
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
}


def main(arguments: "list[str]") -> None:
    use_supported_python(arguments)
    test = arguments[:1] == ["--test"]
    lacking = unmet(requirements(test))
    python = environment(lacking) if lacking else sys.executable
    for variable, folder in (("PYTHONPATH", str(ROOT)), ("PATH", os.path.dirname(python))):
        folders = [folder, os.environ.get(variable)]  # PATH is for JupyterLab's terminals
        os.environ[variable] = os.pathsep.join(filter(None, folders))
    os.execv(python, [python] + arguments[test:])  # noqa: S606  (the user's own command)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


# The Python that was given


def use_supported_python(arguments: "list[str]") -> None:
    """If this Python cannot run the labs, starts this program with one that can, or exits."""
    if os.name == "nt":
        sys.exit("The labs run on Linux and macOS; on Windows, run them in WSL (wsl --install).")
    refusal = version_refusal(sys.version_info[:3])
    if not refusal:
        require_complete_python()
        return
    for name in ["python3.13", "python3.12", "python3.11", "python3.14"]:
        other = shutil.which(name)
        version = version_of(other) if other else None
        if other and version and not version_refusal(version):
            say(f"{refusal.split(';')[0]}; using {other} ({dotted(version)}).")
            os.execv(other, [other, __file__] + arguments)  # noqa: S606  (found on PATH)
    sys.exit(refusal)


def require_complete_python() -> None:
    """Exits if this Python was built without a module that JupyterLab needs, as pyenv's can be."""
    names = ("ctypes", "lzma", "sqlite3", "ssl")
    absent = [name for name in names if not importlib.util.find_spec("_" + name)]
    if absent:
        sys.exit(
            f"{sys.executable} was built without {', '.join(absent)}: install those libraries and "
            "build it again, or name another Python with make PYTHON=/path/to/python3"
        )


def version_refusal(version: "tuple[int, ...]") -> "str | None":
    """A sentence that says why a Python of this version cannot run the labs; None if it can."""
    if OLDEST <= version[:2] <= NEWEST:
        return None
    return (
        f"Python {dotted(version)} is too {'old' if version < OLDEST else 'new'}: the labs need "
        f"Python {dotted(OLDEST)} or newer, up to {dotted(NEWEST)}; "
        "name one with make PYTHON=/path/to/python3"
    )


def version_of(python: str) -> "tuple[int, ...] | None":
    """The version of this interpreter; None if it does not start, as pyenv's shims may not."""
    command = [python, "-c", "import sys; print(*sys.version_info[:3])"]
    try:
        output = subprocess.check_output(command, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(map(int, output.split()))


def dotted(version: "tuple[int, ...]") -> str:
    return ".".join(map(str, version))


# What is needed and what is installed


def requirements(test: bool) -> "list[str]":
    """pyproject.toml's requirements for the labs; with test, also for the tests and the site."""
    project = _project()
    extras = project["optional-dependencies"] if test else {}
    return project["dependencies"] + extras.get("test", []) + extras.get("site", [])


def tested(name: str) -> "tuple[str, str]":
    """The oldest and the newest version of a package that we test: pyproject's and the lock's."""
    oldest = next(need for need in requirements(test=True) if re.match(rf"{name}\b[^-]", need))
    newest = re.search(rf"^{name}==([\d.]+)", (ROOT / "requirements.lock").read_text(), re.M)
    return re.findall(r">=([\d.]+)", oldest)[0], newest.group(1) if newest else ""


def repository() -> str:
    """The address of the course's repository, as pyproject.toml gives it; "" if it gives none."""
    return _project().get("urls", {}).get("Repository", "")


def _project() -> "dict[str, Any]":
    """The table [project] of pyproject.toml."""
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def unmet(needs: "list[str]") -> "list[tuple[str, str, str | None]]":
    """The needs that this Python does not meet: (name, need, installed version or None)."""
    from importlib import metadata

    try:
        from packaging.requirements import Requirement
    except ImportError:  # it is missing, so .venv will be made
        return [(re.split(r"[^\w-]", need)[0], need, None) for need in needs]
    lacking = []
    for need in map(Requirement, needs):
        if need.marker and not need.marker.evaluate():
            continue
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            version = None
        if version is None or not need.specifier.contains(version, prereleases=True):
            lacking.append((need.name, f"{need.name}{need.specifier}", version))
    return lacking


# .venv


def environment(lacking: "list[tuple[str, str, str | None]]") -> str:
    """The path of .venv's Python. Makes .venv first, or brings it up to date, if needed."""
    python = str(VENV / "bin" / "python")
    if is_current(python):
        return python
    import fcntl

    try:
        VENV.mkdir(exist_ok=True)
        with open(str(STAMP), "a") as stamp:  # locked, so that two makes do not install at once
            try:
                fcntl.flock(stamp, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("Another make is installing into .venv: waiting for it.")
                fcntl.flock(stamp, fcntl.LOCK_EX)
            if not is_current(python):
                install(python, lacking)
    except OSError as error:
        sys.exit(reason(str(error)))
    return python


def is_current(python: str) -> bool:
    return STAMP.is_file() and STAMP.read_text() == wanted_stamp() and os.access(python, os.X_OK)


def wanted_stamp() -> str:
    """The stamp of a complete environment. A new lock, new ranges or a moved folder change it."""
    contents = [(ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
    return hashlib.sha256(b"\0".join(contents + [str(ROOT).encode()])).hexdigest()


def install(python: str, lacking: "list[tuple[str, str, str | None]]") -> None:
    """Fills .venv and stamps it. If no package could be installed, the stamp stays as it was."""
    before, started = STAMP.read_text(), time.time()
    if before == UNFINISHED or (before and not version_of(python)):
        say("The environment in .venv is unfinished or has lost its Python: making a new one.")
        run(["rm", "-rf"] + [str(path) for path in VENV.iterdir() if path != STAMP])
    version = version_of(python)
    refusal = version and version_refusal(version)
    if refusal:
        sys.exit(f"The labs cannot use the Python in .venv: {refusal}, or move .venv away.")
    announce(lacking, update=bool(version))
    make_venv(python, has_python=bool(version))
    packages = next((VENV / "lib").glob("python3*/site-packages"))
    changed = packages.stat().st_mtime
    STAMP.write_text(UNFINISHED)
    try:
        uv_install(python)
    except SystemExit:
        if packages.stat().st_mtime == changed:  # uv failed before it installed anything
            STAMP.write_text(before)
        raise
    STAMP.write_text(wanted_stamp())
    say(f"The environment is ready: {time.time() - started:.0f} s.")


def announce(lacking: "list[tuple[str, str, str | None]]", update: bool) -> None:
    """Says what is about to happen, and how much space and time it takes."""
    if update:
        say("Installing what requirements.lock names into .venv: a minute on a fast line.")
        return
    if shutil.disk_usage(str(VENV)).free < CPU_SIZE_GB * 1e9:
        sys.exit(reason("No space left on device"))
    names = [name for name, _, _ in lacking]
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    say(
        f"Python {dotted(sys.version_info[:3])} ({sys.executable}) lacks {', '.join(names[:3])}"
        f"{others}.\nMaking the environment in .venv, once: {CPU_SIZE_GB} to {SIZE_GB} GB, "
        "a minute or two on a fast line."
    )
    if sys.platform == "linux" and not shutil.which("nvidia-smi"):
        say(
            f"(There is no GPU here: with PIP_EXTRA_INDEX_URL={CPU_INDEX} before make, "
            f"it takes {CPU_SIZE_GB} GB.)"
        )


def make_venv(python: str, has_python: bool) -> None:
    """Makes .venv, unless its Python is there already, with pip and uv in it."""
    if not importlib.util.find_spec("ensurepip"):
        package = f"python{dotted(sys.version_info[:2])}-venv"
        sys.exit(
            f"{sys.executable} cannot make environments: install its venv module (on Debian and "
            f"Ubuntu: sudo apt-get install {package}), then run the same command again."
        )
    # This program may run in the very .venv that was just emptied.
    base = getattr(sys, "_base_executable", sys.executable)
    run([python, "-m", "ensurepip"] if has_python else [base, "-m", "venv", str(VENV)])
    pip_install = [python, "-m", "pip", "install", "-q", "--no-input", "--no-user"]
    run(pip_install + ["--disable-pip-version-check", UV])


def uv_install(python: str) -> None:
    # Without --no-config, uv would read pyproject.toml, where torch's CUDA libraries are left out.
    uv = [python, "-m", "uv", "--no-config", "pip", "install", "--python", python]
    run(uv + ["-r", str(ROOT / "requirements.lock"), "-e", str(ROOT)], uv_variables(python))


def uv_variables(python: str) -> "dict[str, str]":
    """The environment variables for uv, with pip's settings, which uv does not read by itself."""
    command, quiet = [python, "-m", "pip", "config", "list"], subprocess.DEVNULL
    output = subprocess.check_output(command, stderr=quiet, errors="replace")
    pip = dict(re.findall("^(.*)=(['\"].*)$", output, re.MULTILINE))
    variables = {"UV_COMPILE_BYTECODE": "1", "UV_SYSTEM_CERTS": "1"}  # as pip does
    variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip's: the newest of all indexes
    for source in ("global.", "install.", ":env:."):  # the last one holds
        for setting in [name for name in UV_VARIABLES if source + name in pip]:
            words = ast.literal_eval(pip[source + setting]).split()
            separator = "," if setting == "find-links" else " "
            variables[UV_VARIABLES[setting]] = separator.join(words)
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    if not os.access(cache if os.path.isdir(cache) else os.path.dirname(cache), os.W_OK):
        variables["UV_NO_CACHE"] = "1"
    return dict(os.environ, **variables)


def run(command: "list[str]", env: "dict[str, str] | None" = None) -> None:
    """Runs a command, showing how far uv is; exits with the reason if it fails."""
    pipe, lines = subprocess.PIPE, []
    with subprocess.Popen(
        command, env=env, stdout=pipe, stderr=subprocess.STDOUT, errors="replace"
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            if env and not re.match(" [+~-] ", line):  # of uv, all but the list of 160 packages
                print(line, end="", file=sys.stderr, flush=True)
    if process.returncode:
        sys.exit(reason("".join(lines)))


def reason(output: str) -> str:
    """One sentence that says why an installation failed, from what the failed program printed."""
    free_gb = shutil.disk_usage(str(ROOT)).free / 1e9
    sentences = {
        "No space left on device|Disk quota exceeded": f"The disk is full: .venv needs "
        f"{CPU_SIZE_GB} to {SIZE_GB} GB, and {ROOT} has {free_gb:.1f} GB free; make room",
        "Permission denied|Read-only file system|Operation not permitted": "There is no permission "
        f"to write in {ROOT}: copy the course to a folder of your own",
        "CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate": "The package index's "
        "certificate is not accepted: give pip your network's own (PIP_CERT=/path/to/it.pem)",
        "[Cc]onnection|client error|ProxyError|name resolution|timed out|unreachable": "The "
        "package index cannot be reached: connect to the network (pip's settings: pip config list)",
    }
    for pattern, sentence in sentences.items():
        if re.search(pattern, output):
            return f"{sentence}, then run the same command again; what was downloaded is kept."
    last = output.strip().splitlines()[-1:] or ["there was no message"]
    return f"The installation failed: {last[0].strip()}"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; the same command goes on from here.")
