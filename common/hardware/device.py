"""What this machine has, and Triton prepared for it."""

import importlib.util
import os
import platform
import sys
from pathlib import Path


def has_gpu() -> bool:
    """Whether PyTorch can use an NVIDIA GPU here."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def name() -> str:
    """The GPU's name, or the CPU's if there is no GPU."""
    if has_gpu():
        import torch

        return torch.cuda.get_device_name()
    return cpu_name()


def cpu_name() -> str:
    """The CPU's name as its maker writes it, or its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """The machine's memory in bytes, or the container's limit if that is smaller."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # control groups, version 2
    text = limit.read_text().strip() if limit.exists() else "max"
    return machine if text == "max" else min(machine, int(text))


def describe() -> str:
    """One line on this machine: cores, memory, GPU."""
    line = f"{cores()} cores ({cpu_name()}), {memory_bytes() / 1e9:.0f} GB of memory"
    if not has_gpu():
        return f"{line}, no GPU"
    import torch

    gpus, gpu = torch.cuda.device_count(), torch.cuda.get_device_properties(0)
    return f"{line}; {gpus} × {gpu.name}, {gpu.total_memory / 1e9:.0f} GB"


def multiprocessors() -> int:
    """The GPU's number of streaming multiprocessors."""
    import torch

    return torch.cuda.get_device_properties(0).multi_processor_count


def prepare_triton() -> None:
    """Makes Triton interpret kernels if there is no GPU. Call it before triton is imported."""
    if not importlib.util.find_spec("triton"):  # the rest of a lab runs without it
        print("Triton exists only for Linux. On a Mac, its parts run in the course's container:")
        print("in VS Code choose Reopen in Container, or see README.md.")
        return
    interpret_without_gpu()
    # Triton 3.9 warns where nobody chooses whether a * b + c is fused, as it was until then.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    if not interprets(os.environ.get("TRITON_INTERPRET")):
        if has_gpu():
            return
        raise RuntimeError(
            "triton was imported before prepare_triton(): "
            "restart the kernel and run the setup cell first"
        )
    from nogpu.tiles import triton_interpreter

    triton_interpreter.interpreter()  # with our fixes: bf16


def interpret_without_gpu() -> None:
    """Has Triton interpret kernels if there is no GPU, whoever imports it first.

    PyTorch imports Triton by itself, with its first optimizer for example.
    """
    is_set = interprets(os.environ.get("TRITON_INTERPRET"))
    if "triton" not in sys.modules and not is_set and not has_gpu():
        os.environ["TRITON_INTERPRET"] = "1"


def interprets(setting: str | None) -> bool:
    """Whether this value of TRITON_INTERPRET (None: not set) makes Triton interpret kernels."""
    return (setting or "").lower() in ("1", "true", "yes", "on", "y")


def compute_capability() -> tuple[int, int]:
    """(major, minor) of the GPU that kernels are compiled for, (0, 0) if they are interpreted."""
    if not has_gpu() or interprets(os.environ.get("TRITON_INTERPRET")):
        return 0, 0
    import torch

    return torch.cuda.get_device_capability()


def starts_early() -> bool:
    """Whether a kernel can start before the previous one ends (programmatic dependent launch)."""
    return compute_capability() >= (9, 0)  # from the H100 on
