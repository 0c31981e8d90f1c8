"""Says what the labs lack here, and the line that fixes it: python -m common.setup.doctor.

Each diagnosis is a function of Facts, which are gathered in one place. Both work without packages.
"""

import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterable
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from common.hardware import device
from common.setup import environment

Version = tuple[int, ...]  # major and minor
Lacking = tuple[str, str, str | None]  # name, need, installed version


class State(Enum):
    """The state of one part of the machine. OPTIONAL: the labs run, but less well."""

    WELL = "ok"
    OPTIONAL = "could be better"
    NEEDED = "needed"


class Facts(NamedTuple):
    """What the diagnoses depend on. None stands for what is missing."""

    system: str  # sys.platform
    interpreter: str  # how to call this Python
    in_venv: bool  # it is the one that make made
    python: Version
    lacking: tuple[Lacking, ...]
    tested: str  # the versions of PyTorch and Triton that we test
    torch_error: str | None  # why PyTorch does not import
    torch_cuda: Version | None  # the CUDA version of PyTorch's build
    has_gpu: bool  # PyTorch can use it
    gpu_in_machine: bool
    driver: Version | None  # the newest CUDA version that NVIDIA's driver takes
    toolkit: Version | None  # the CUDA version of the compiler that numba.cuda uses
    linker: Version | None  # nvJitLink's: with it, numba.cuda makes machine code instead of PTX
    triton: str | None
    triton_interpret: str | None  # the environment variable
    compiler: str | None
    python_headers: bool


class Diagnosis(NamedTuple):
    """A line of the doctor's table, and the line that fixes what is wrong."""

    subject: str
    state: State
    finding: str
    fix: str = ""


# Diagnoses


def packages(facts: Facts) -> Diagnosis:
    lacking = [need for need in facts.lacking if not too_new_for_numba(need)]
    if not lacking:
        which = "all others" if facts.lacking else "all"
        return Diagnosis(
            "packages",
            State.WELL,
            f"Python {dotted(facts.python)}; {which} are within pyproject.toml's ranges, "
            f"tested with {facts.tested}",
        )
    finding = ", ".join(f"{name} {version or 'is missing'}" for name, _, version in lacking[:4])
    finding += f" and {len(lacking) - 4} more" if len(lacking) > 4 else ""
    fix = f"{pip(facts)} " + " ".join(f"'{need}'" for _, need, _ in lacking)
    if len(lacking) > 4:
        fix = (
            f"{pip(facts)} -r requirements.lock"
            if facts.in_venv
            else "make doctor (makes .venv with all of them)"
        )
    return Diagnosis("packages", State.NEEDED, f"{finding}, outside pyproject.toml's ranges", fix)


def numpy(facts: Facts) -> Diagnosis | None:
    for _, need, version in filter(too_new_for_numba, facts.lacking):
        finding = f"{version} is too new for numba.cuda, which calls row_stack"
        return Diagnosis("NumPy", State.NEEDED, finding, f"{pip(facts)} '{need}'")
    return None


def too_new_for_numba(need: Lacking) -> bool:
    name, _, version = need
    return name == "numpy" and version is not None and numbers(version) >= (2, 5)


def torch(facts: Facts) -> Diagnosis | None:
    if not facts.torch_error:
        return None
    fix = f"{pip(facts)} --force-reinstall torch"
    return Diagnosis("PyTorch", State.NEEDED, f"does not import: {facts.torch_error}", fix)


def gpu(facts: Facts) -> Diagnosis | None:
    # uv takes the build that fits the driver. pyproject.toml's settings for uv are for the lock.
    reinstall = (
        f"{pip(facts)} uv && {facts.interpreter} -m uv --no-config pip install "
        f"--python {facts.interpreter} --reinstall-package torch --torch-backend=auto torch"
    )
    driver, build = dotted(facts.driver), dotted(facts.torch_cuda)
    if facts.has_gpu:
        return Diagnosis("GPU", State.WELL, f"driver for CUDA {driver}, PyTorch for CUDA {build}")
    if not facts.gpu_in_machine:
        return Diagnosis("GPU", State.WELL, "none from NVIDIA; the labs run on the CPU")
    if facts.driver is None:
        return Diagnosis(
            "GPU",
            State.OPTIONAL,
            "it has no driver from NVIDIA",
            "install the driver (Ubuntu: sudo ubuntu-drivers install) and restart the machine",
        )
    if facts.torch_error:
        return None
    if facts.torch_cuda is None:
        return Diagnosis("GPU", State.OPTIONAL, "PyTorch's CPU build does not use it", reinstall)
    if facts.torch_cuda[0] > facts.driver[0]:
        finding = f"PyTorch is built for CUDA {build}, the driver takes up to {driver}"
        return Diagnosis("GPU", State.OPTIONAL, finding, reinstall)
    return Diagnosis(
        "GPU", State.OPTIONAL, "PyTorch does not see it", "unset CUDA_VISIBLE_DEVICES; nvidia-smi"
    )


def toolkit(facts: Facts) -> Diagnosis | None:
    if facts.system != "linux" or any(name == "numba-cuda" for name, _, _ in facts.lacking):
        return None
    if facts.toolkit is None and not facts.gpu_in_machine:
        return None  # the simulator takes its place
    if facts.toolkit is None:
        return Diagnosis(
            "CUDA compiler",
            State.NEEDED,
            "numba.cuda does not find one",
            f"{pip(facts)} 'numba-cuda[cu13]'",
        )
    version, driver = dotted(facts.toolkit), dotted(facts.driver)
    if facts.driver is None or not facts.gpu_in_machine or facts.toolkit <= facts.driver:
        return Diagnosis("CUDA compiler", State.WELL, f"CUDA {version}")
    if facts.linker and facts.linker[0] == facts.driver[0] == facts.toolkit[0]:
        return Diagnosis(
            "CUDA compiler", State.WELL, f"CUDA {version}, linked for a driver of CUDA {driver}"
        )
    finding = f"it writes PTX of CUDA {version}, newer than the driver takes ({driver})"
    fix = f"{pip(facts)} 'numba-cuda[cu{facts.driver[0]}]' 'cuda-toolkit=={driver}.*'"
    return Diagnosis("CUDA compiler", State.NEEDED, finding, fix)


def triton(facts: Facts) -> Diagnosis | None:
    unset = "unset TRITON_INTERPRET"
    interprets = device.interprets(facts.triton_interpret)
    if facts.system != "linux":
        return Diagnosis(
            "Triton",
            State.OPTIONAL,
            "it does not exist for this operating system; the labs without Triton run",
            "do the Triton labs on Linux: in the course's container (VS Code: Reopen in Container)",
        )
    if facts.triton is None:
        return None  # `packages` says so
    if facts.has_gpu and interprets:
        return Diagnosis(
            "Triton",
            State.OPTIONAL,
            "TRITON_INTERPRET makes it interpret kernels, though there is a GPU",
            unset,
        )
    if not facts.has_gpu and facts.triton_interpret and not interprets:
        finding = (
            f"TRITON_INTERPRET={facts.triton_interpret}, but without a GPU it must interpret; "
            "the labs overrule it"
        )
        return Diagnosis("Triton", State.OPTIONAL, finding, unset)
    return Diagnosis(
        "Triton",
        State.WELL,
        f"{facts.triton}, {'compiles' if facts.has_gpu else 'interprets'} kernels",
    )


def compiler(facts: Facts) -> Diagnosis | None:
    if not facts.has_gpu:
        return None  # in the labs, torch.compile and Triton compile only for a GPU
    users = "torch.compile and Triton call it"
    if facts.compiler is None:
        return Diagnosis(
            "C++ compiler", State.NEEDED, f"it is missing; {users}", "sudo apt-get install g++"
        )
    if not facts.python_headers:
        return Diagnosis(
            "C++ compiler",
            State.NEEDED,
            f"it is here, but Python.h is missing; {users}",
            f"sudo apt-get install python{dotted(facts.python)}-dev",
        )
    return Diagnosis("C++ compiler", State.WELL, facts.compiler)


DIAGNOSES = (packages, numpy, torch, gpu, toolkit, triton, compiler)


def diagnose(facts: Facts) -> list[Diagnosis]:
    """The diagnoses of these facts, in the order of the table."""
    return [diagnosis for diagnosis in (function(facts) for function in DIAGNOSES) if diagnosis]


def pip(facts: Facts) -> str:
    return f"{facts.interpreter} -m pip install"


def dotted(version: Version | None) -> str:
    return environment.dotted(version) if version else "unknown"


def numbers(version: str) -> Version:
    """Major and minor of a written version: "13.0.88" gives (13, 0)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


# Facts


def gather() -> Facts:
    """The Facts of this machine."""
    error, cuda = import_torch()
    return Facts(
        system=sys.platform,
        interpreter=sys.executable.removeprefix(f"{Path.cwd()}/"),
        in_venv=Path(sys.prefix) == environment.VENV,
        python=sys.version_info[:2],
        lacking=tuple(environment.unmet(environment.requirements(test=False))),
        tested=" and ".join(map(tested, ("torch", "triton"))),
        torch_error=error,
        torch_cuda=cuda,
        has_gpu=error is None and device.has_gpu(),
        gpu_in_machine=gpu_in_machine(),
        driver=driver_version(),
        toolkit=toolkit_version(),
        linker=installed("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
        triton=written_version("triton"),
        triton_interpret=os.environ.get("TRITON_INTERPRET"),
        compiler=os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"),
        python_headers=Path(sysconfig.get_path("include"), "Python.h").exists(),
    )


def tested(name: str) -> str:
    """The versions of a package that we test: "torch 2.11 to 2.15.0"."""
    return f"{name} {' to '.join(environment.tested(name))}"


def import_torch() -> tuple[str | None, Version | None]:
    """Why PyTorch does not import, and its build's CUDA version. If it is missing: neither."""
    if written_version("torch") is None:
        return None, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a driver that is too old has its own diagnosis
            version = importlib.import_module("torch").version.cuda
            device.has_gpu()
    except Exception as error:  # a damaged installation fails in many ways
        return str(error).splitlines()[0] if str(error) else repr(error), None
    return None, numbers(version) if version else None


def gpu_in_machine() -> bool:
    """Whether an NVIDIA GPU is in the machine, with its driver or without."""
    for card in Path("/sys/bus/pci/devices").glob("*"):
        is_display = (card / "class").read_text().startswith("0x03")
        if is_display and (card / "vendor").read_text() == "0x10de\n":
            return True
    smi = shutil.which("nvidia-smi")  # some containers and WSL show no PCI bus
    return bool(smi) and subprocess.run([smi, "-L"], capture_output=True).returncode == 0


def driver_version() -> Version | None:
    """The newest CUDA version that NVIDIA's driver takes."""
    try:
        library, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return None
    if library.cuDriverGetVersion(ctypes.byref(version)) or not version.value:
        return None
    return version.value // 1000, version.value % 1000 // 10


def toolkit_version() -> Version | None:
    """The CUDA version of the installed compiler packages, or of nvcc."""
    version = installed("nvidia-nvvm", "nvidia-cuda-nvcc-cu12")
    if version or not shutil.which("nvcc"):
        return version
    output = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release ([\d.]+)", output)
    return numbers(release.group(1)) if release else None


def installed(*names: str) -> Version | None:
    """Major and minor version of the first of these packages that is installed."""
    return next((numbers(version) for version in map(written_version, names) if version), None)


def written_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# The table


def main() -> int:
    """Prints the table and the fixes; 0 if the labs have all that they need, else 1."""
    diagnoses = diagnose(gather())
    print_table(device.describe(), [(line.subject, line.state, line.finding) for line in diagnoses])
    for line in diagnoses:
        if line.fix:
            print(f"{line.subject}: {line.fix}")
    needed = sum(line.state == State.NEEDED for line in diagnoses)
    print(f"To fix before the labs run: {needed}." if needed else "All that the labs need is here.")
    return int(needed > 0)


def print_table(title: str, rows: Iterable[tuple[str, State, str]]) -> None:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:  # rich is one of the packages that may be missing
        print("\n".join([title, *(f"{name}  {state.value}  {text}" for name, state, text in rows)]))
        return
    styles = {State.WELL: "green", State.OPTIONAL: "yellow", State.NEEDED: "bold red"}
    table = Table(
        title=title, title_justify="left", title_style="bold", show_header=False, box=box.SIMPLE
    )
    for subject, state, finding in rows:
        table.add_row(
            Text(subject), Text(state.value, styles[state]), Text(finding, overflow="fold")
        )
    Console().print(table)


if __name__ == "__main__":
    if refusal := environment.version_refusal(sys.version_info[:3]):
        sys.exit(refusal)
    sys.exit(main())
