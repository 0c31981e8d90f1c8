"""GPU programs on a laptop: CUDA kernels, Triton kernels, and p ranks, run and counted.

from nogpu import simt, tiles, ranks    # the three simulators
from nogpu import cuda                  # numba.cuda on a GPU, the simulator without one
"""

import importlib.util
import os
from types import ModuleType

QUIET = ("LOW_OCCUPANCY_WARNINGS", "WARN_ON_IMPLICIT_COPY")  # Numba's, of small kernels


def __getattr__(name: str) -> ModuleType:
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _has_gpu():
        return importlib.import_module("nogpu.simt.cuda")
    # A learner's first kernels are small, and their arrays often on the host: no warning.
    for warning in QUIET:
        os.environ.setdefault(f"NUMBA_CUDA_{warning}", "0")
    return importlib.import_module("numba.cuda")


def _has_gpu() -> bool:
    """Whether PyTorch, or Numba where there is no PyTorch, can use an NVIDIA GPU here."""
    if importlib.util.find_spec("torch"):
        return importlib.import_module("torch").cuda.is_available()
    if importlib.util.find_spec("numba"):
        return importlib.import_module("numba.cuda").is_available()
    return False
