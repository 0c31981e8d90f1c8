"""Tests share the cores: each of xdist's workers, with the kernels that it starts, takes its part of the threads."""
import os

from common import device

workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
os.environ.setdefault("OMP_NUM_THREADS", str(max(1, device.cores() // workers)))
