"""Tests share the cores: each of xdist's workers, with the kernels that it starts, takes its part of the threads."""
import os

from common import device

workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT")  # not set in the process that starts the workers
if workers:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, device.cores() // int(workers))))
