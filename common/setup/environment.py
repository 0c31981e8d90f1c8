"""Runs a command in the Python that the labs need: the one given if it has all of it, else .venv, made from it once.

    python3 common/setup/environment.py -m common.setup.jupyter 01
    python3 common/setup/environment.py --test -m pytest           (--test: with what the tests need)

Standard library only and no syntax newer than Python 3.6, so that an old Python can say that it is too old.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "ml-systems-labs.stamp"
UNFINISHED = "installing"  # what the stamp says meanwhile; else it is empty or wanted_stamp()
OLDEST, NEWEST = (3, 11), (3, 14)  # as pyproject's requires-python
SIZE_GB, CPU_SIZE_GB = (
    6,
    3,
)  # of .venv on Linux, measured: 5.6 with PyTorch's CUDA build, 2.8 with its CPU build
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main(arguments):
    use_supported_python(arguments)
    test = arguments[:1] == ["--test"]
    lacking = unmet(requirements(test))
    python = environment(lacking) if lacking else sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    os.environ["PATH"] = (
        os.path.dirname(python) + os.pathsep + os.environ.get("PATH", "")
    )  # for JupyterLab's terminals
    os.execv(python, [python] + arguments[test:])


def say(sentence):
    print(sentence, file=sys.stderr, flush=True)


# The Python that was given


def use_supported_python(arguments):
    """Starts this program again under a Python on PATH that can run the labs if this one cannot, or refuses."""
    if os.name == "nt":
        raise SystemExit(
            "The labs run on Linux and macOS; on Windows, run them in WSL (wsl --install)."
        )
    refusal = version_refusal(sys.version_info[:3])
    if not refusal:
        require_complete_python()
        return
    for name in ["python3.13", "python3.12", "python3.11", "python3.14"]:
        other = shutil.which(name)
        version = other and version_of(other)
        if version and not version_refusal(version):
            say(f"{refusal.split(';')[0]}; using {other} ({dotted(version)}).")
            os.execv(other, [other, __file__] + arguments)
    raise SystemExit(refusal)


def require_complete_python():
    """Refuses a Python that was built without a module that the labs or JupyterLab need, as pyenv's can be."""
    absent = [
        name
        for name in ("ctypes", "lzma", "sqlite3", "ssl")
        if not importlib.util.find_spec("_" + name)
    ]
    if absent:
        raise SystemExit(
            f"{sys.executable} was built without {', '.join(absent)}: install those libraries and build "
            "it again, or name another Python with make PYTHON=/path/to/python3"
        )


def version_refusal(version):
    """A sentence that says why a Python of this version (a tuple of ints) cannot run the labs; None if it can."""
    if OLDEST <= tuple(version[:2]) <= NEWEST:
        return None
    age = "old" if tuple(version) < OLDEST else "new"
    return (
        f"Python {dotted(version)} is too {age}: the labs need Python {dotted(OLDEST)} or newer, up to "
        f"{dotted(NEWEST)}; name one with make PYTHON=/path/to/python3"
    )


def version_of(python):
    """The version of this interpreter, a tuple of three ints; None if it does not start."""
    script = "import sys; print(*sys.version_info[:3])"
    try:
        return tuple(
            map(
                int,
                subprocess.check_output([python, "-c", script], stderr=subprocess.DEVNULL).split(),
            )
        )
    except (
        OSError,
        subprocess.CalledProcessError,
    ):  # a shim of pyenv stands on PATH and may refuse to start
        return None


def dotted(version):
    return ".".join(map(str, version))


# What is needed and what is there


def requirements(test):
    """pyproject.toml's requirements, as strings: the labs', with the tests' if test."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + (project["optional-dependencies"]["test"] if test else [])


def unmet(needs):
    """Those of the needs that this Python does not meet: a list of (name, need, version that is there or None)."""
    from importlib import metadata

    try:
        from packaging.requirements import Requirement
    except ImportError:
        try:
            from pip._vendor.packaging.requirements import Requirement
        except ImportError:  # no packages at all
            return [(re.match(r"[\w-]+", need).group(), need, None) for need in needs]
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


def environment(lacking):
    """The path of .venv's Python, which is made or brought up to date first, where needed."""
    python = str(VENV / "bin" / "python")
    if is_current(python):
        return python
    try:
        VENV.mkdir(exist_ok=True)
        with open(str(STAMP), "a") as stamp:
            wait_for(stamp)
            if not is_current(python):
                install(python, lacking)
    except OSError as error:
        raise SystemExit(reason(str(error))) from None
    return python


def is_current(python):
    return STAMP.is_file() and STAMP.read_text() == wanted_stamp() and os.access(python, os.X_OK)


def wanted_stamp():
    """What the stamp of a complete environment says; another lock, other ranges or a moved folder change it."""
    contents = [(ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")]
    return hashlib.sha256(b"\0".join(contents + [str(ROOT).encode()])).hexdigest()


def wait_for(stamp):
    """Locks the open stamp, so that two makes do not install at once."""
    import fcntl

    try:
        fcntl.flock(stamp, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another make is installing into .venv: waiting for it.")
        fcntl.flock(stamp, fcntl.LOCK_EX)


def install(python, lacking):
    """Fills .venv and stamps it."""
    before, started = STAMP.read_text(), time.time()
    if before == UNFINISHED or (before and not version_of(python)):
        say(
            "The environment in .venv was left unfinished or has lost its Python: making it afresh."
        )
        empty()
    version = version_of(python)
    if version and version_refusal(version):
        raise SystemExit(
            f"The folder .venv is not of use here: {version_refusal(version)}, or move .venv away."
        )
    announce(lacking, update=bool(version))
    STAMP.write_text(UNFINISHED)
    make_venv(python, version)
    try:
        pip_install(python, "-r", str(ROOT / "requirements.lock"))
    except NothingInstalled:
        STAMP.write_text(before)
        raise
    pip_install(python, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    STAMP.write_text(wanted_stamp())
    say(f"The environment is ready: {time.time() - started:.0f} s.")


def empty():
    """Removes all that is in .venv but the stamp, which holds the lock."""
    for path in VENV.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        elif path != STAMP:
            path.unlink()


def announce(lacking, update):
    """Says what is about to happen, and what it takes."""
    if update:
        say("Installing what requirements.lock names into .venv: a minute or two on a fast line.")
        return
    if shutil.disk_usage(str(VENV)).free < CPU_SIZE_GB * 1e9:
        raise SystemExit(reason("No space left on device"))
    names = [name for name, _, _ in lacking]
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    say(
        f"Python {dotted(sys.version_info[:3])} ({sys.executable}) lacks {', '.join(names[:3])}{others}.\n"
        f"Making the environment in .venv, once: {CPU_SIZE_GB} to {SIZE_GB} GB, a minute or two on a fast line."
    )
    if sys.platform == "linux" and not shutil.which("nvidia-smi"):
        say(
            f"(No GPU here: with PIP_EXTRA_INDEX_URL={CPU_INDEX} before make, it is {CPU_SIZE_GB} GB.)"
        )


def make_venv(python, version):
    """Makes .venv if its Python has no version yet, and sees to it that pip is in it."""
    base = getattr(
        sys, "_base_executable", sys.executable
    )  # .venv's own Python may be the one that is running
    if not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"):
        package = f"python{dotted(sys.version_info[:2])}-venv"
        raise SystemExit(
            f"{base} cannot make environments: install its venv module (Debian, Ubuntu: apt-get install "
            f"{package}), then run the same command again."
        )
    command = [python, "-m", "ensurepip"] if version else [base, "-m", "venv", str(VENV)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise SystemExit(reason(result.stdout))


# pip


class NothingInstalled(SystemExit):
    """pip failed before it changed anything."""


def pip_install(python, *arguments):
    """Runs pip install and tells how far it is; raises SystemExit with a sentence that says why it failed."""
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]
    lines = []
    with subprocess.Popen(
        command + list(arguments),
        env=dict(os.environ, PIP_USER="0"),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        errors="replace",
    ) as process:
        for line in process.stdout:
            lines.append(line)
            show_progress(lines)
    if sys.stderr.isatty():
        print(end="\r\033[K", file=sys.stderr)
    if process.returncode:
        output = "".join(lines)
        (VENV / "pip.log").write_text(output)
        failure = SystemExit if "Installing collected packages" in output else NothingInstalled
        raise failure(reason(output))


def show_progress(lines):
    """Writes what pip does over the line before it, on a terminal; a log gets the one step that takes a minute."""
    word = lines[-1].split()[:1]
    if word == ["Installing"]:
        step = "Unpacking the packages: half a minute or so."
    elif word and word[0] in ("Collecting", "Downloading", "Using"):
        count = sum(line.startswith(("Collecting", "Processing")) for line in lines)
        step = f"{count} packages: {lines[-1].split(' (from')[0].strip()}"
    else:
        return
    if sys.stderr.isatty():
        print(
            end=f"\r\033[K{step[: shutil.get_terminal_size().columns - 1]}",
            file=sys.stderr,
            flush=True,
        )
    elif word == ["Installing"] and len(lines) > 20:
        say(step)


def reason(output):
    """One sentence that says why an installation failed, from what pip, venv or the operating system said."""
    free_gb = shutil.disk_usage(str(ROOT)).free / 1e9
    again = "then run the same command again; what was downloaded is kept."
    sentences = {
        "No space left on device|Disk quota exceeded": f"The disk is full: .venv needs {CPU_SIZE_GB} to {SIZE_GB} GB, and {ROOT} has {free_gb:.1f} GB free; "
        f"make room, {again}",
        "Permission denied|Read-only file system|Operation not permitted": f"There is no permission to write in {ROOT}: copy the course to a folder of your own.",
        "CERTIFICATE_VERIFY_FAILED|SSLError": f"The package index's certificate is not accepted: give pip your network's own (PIP_CERT=/path/to/it.pem), "
        f"{again}",
        "NewConnectionError|[Cc]onnection|ProxyError|name resolution|timed out|unreachable": f"The package index cannot be reached: connect to the network (pip's settings: pip config list), {again}",
    }
    for pattern, sentence in sentences.items():
        if re.search(pattern, output):
            return sentence
    absent = re.search("No matching distribution found for (\\S+)", output)
    if absent:
        python = f"Python {dotted(sys.version_info[:2])} on {sys.platform} {os.uname().machine}"
        return (
            f"The package index has no {absent.group(1)} for {python}, or cannot be reached "
            "(pip's settings: pip config list)."
        )
    last = output.strip().splitlines()[-1:] or ["it said nothing"]
    return f"The installation failed: {last[0].strip()} (all that pip said is in .venv/pip.log)"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit("\nInterrupted; the same command goes on from here.") from None
