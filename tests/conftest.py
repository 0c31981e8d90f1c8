"""Tests share the cores, and leave the student's own folder alone.

What belongs together goes to one of xdist's workers, each with its part of the threads.
"""

import os
import re
import signal
import tempfile

import hypothesis
import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager

from common import device

hypothesis.settings.register_profile(
    "gate", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gate")  # the same cases each time, whatever else the machine does

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell starts what it runs in the background deaf to it

sockets = tempfile.TemporaryDirectory()


def kernel_manager(**options):
    """For nbval: a kernel that listens at files. Jupyter looks for free TCP ports, and another process may take one first."""
    return KernelManager(
        transport="ipc", ip=os.path.join(tempfile.mkdtemp(dir=sockets.name), "kernel"), **options
    )


nbval.kernel.KernelManager = kernel_manager

workers = os.environ.get(
    "PYTEST_XDIST_WORKER_COUNT"
)  # not set in the process that starts the workers
if not workers:
    scratch = (
        tempfile.TemporaryDirectory()
    )  # for the ledger and the profile of the solutions, whose kernels inherit it
    os.environ["COURSE_FOLDER"] = scratch.name
else:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, device.cores() // int(workers))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The cells of a notebook share a kernel, the tests of a file its fixtures; but each lab goes through the gate alone."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndLab(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            lab = re.search(r"\[(\d\d_[a-z_]+)", test)
            return f"{file} {lab[1]}" if lab and file.endswith("test_labs.py") else file

    return ByFileAndLab(config, log)


@pytest.fixture(autouse=True)
def style_of_its_own():
    """A lab's set-up, which the grader executes, changes Matplotlib's style: for that test alone."""
    import matplotlib

    with matplotlib.rc_context():
        yield
