"""Tests share the cores, and leave the student's own folder alone.

What belongs together goes to one of xdist's workers, each with its part of the threads.
"""
import os
import tempfile

import pytest

from common import device

workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT")  # not set in the process that starts the workers
if not workers:
    scratch = tempfile.TemporaryDirectory()  # for the ledger and the profile of the solutions, whose kernels inherit it
    os.environ["COURSE_FOLDER"] = scratch.name
else:
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, device.cores() // int(workers))))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The cells of a notebook share a kernel, the tests of a file its fixtures; but each lab goes through the gate alone."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        lab = parameters.get("lab") or parameters.get("name", "")
        group = f"{item.path.stem} {lab}" if item.path.stem == "test_labs" else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
