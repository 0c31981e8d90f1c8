"""Tests share the cores, and leave the student's own folder alone.

With several processes, what belongs together goes to one of them, and each has its part of the
threads.
"""

import os
import re
import signal
import sys
import tempfile
from typing import Any

import hypothesis
import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager

from common.hardware import device
from grading.source import labs

labs.light_jupytext()

hypothesis.settings.register_profile(
    "gate", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gate")  # the same cases each time, whatever else the machine does

# A shell makes commands in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

sockets = tempfile.TemporaryDirectory()


def kernel_manager(**options: Any) -> KernelManager:
    """For nbval: a kernel that listens at files, because another process may take its TCP ports."""
    return KernelManager(
        transport="ipc", ip=os.path.join(tempfile.mkdtemp(dir=sockets.name), "kernel"), **options
    )


setattr(nbval.kernel, "KernelManager", kernel_manager)  # noqa: B010 (it expects the class)

workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT")  # not set in the process that starts them
if not workers:
    scratch = tempfile.TemporaryDirectory()  # for the ledger and the profile of the solutions
    os.environ["COURSE_FOLDER"] = scratch.name  # which their kernels inherit
else:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, device.cores() // int(workers))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process more than cores: some tests wait for other processes, or for a time limit."""
    return device.cores() + 1


pytest_plugins = ["tests.gate.plugin"]


def pytest_collection_modifyitems(items):
    """Parts of the labs' gate come last: the small ones fill what the long files leave."""
    items.sort(key=lambda item: bool(_part_of_a_lab(item.nodeid)))


def _part_of_a_lab(nodeid):
    """Of a test of test_labs.py: the lab, and the exercise or what is tested."""
    test = re.search(r"test_labs\.py::(\w+)\[(\d\d_[a-z_]+) ?(\w*)", nodeid)
    return f"{test[2]} {test[3] or test[1]}" if test else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps a notebook's cells, and a file's tests, in one process.

    The labs' gate is one file and most of the work: each part of a lab goes to any free process.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndPart(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return _part_of_a_lab(nodeid) or nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # in the order above
    return ByFileAndPart(config, log)


@pytest.fixture(autouse=True)
def style_of_its_own():
    """A lab's setup, which the grader executes, changes Matplotlib's style: for one test alone."""
    import matplotlib

    with matplotlib.rc_context():
        yield


@pytest.fixture(autouse=True)
def dtype_of_its_own():
    """So does it change PyTorch's default dtype."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_default_dtype(torch.float32)
