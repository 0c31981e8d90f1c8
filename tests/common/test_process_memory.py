"""What a call takes in memory, counted from outside: common.checks.grader_link.weighed."""

import gc
from pathlib import Path

import numpy as np
import pytest

from common.checks.grader_link import weighed
from common.hardware import process_memory
from common.hardware.process_memory import Resident
from grading.jail import choice
from grading.worker.fork_server import ForkServer
from grading.worker.remote import Remote
from grading.worker.session import Session

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not say what a process holds"
)
MB = 1_000_000
CELL = """
from common.hardware import process_memory

def takes(megabytes):
    block = bytearray(megabytes * 1_000_000)
    return len(block)

def lies(megabytes):
    process_memory.beyond = lambda *_: 0
    process_memory.resident = lambda pid: process_memory.Resident(0, 0)
    return takes(megabytes)
"""


@pytest.fixture(scope="module", params=choice.JAILS)
def fork_server(request):
    if problem := choice.JAILS[request.param].problem():
        pytest.skip(f"there is no {request.param} here: {problem}")
    fork_server = ForkServer(
        "common.hardware.process_memory", jail=choice.JAILS[request.param], bare=True
    )
    yield fork_server
    fork_server.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["takes", "lies"])
def test_what_a_call_takes_and_frees_is_seen_whatever_it_says_of_itself(fork_server, name):
    session = Session(fork_server, [("cell", CELL)])
    session.allow(60)
    function = Remote(session, name, CELL)
    try:
        assert function(300) == 300 * MB  # an earlier call hides nothing
        result, took = weighed(function, 200)
        assert result == 200 * MB and 190 * MB < took < 250 * MB
        _, took = weighed(function, 1)
        assert took < 50 * MB
    finally:
        session.close()


def test_in_a_notebook_its_own_process_is_asked():
    gc.collect()
    np.ones(40 * MB).sum()  # has taken more, and has freed it
    result, took = weighed(lambda count: float(np.ones(count).sum()), 20 * MB)
    assert result == 20 * MB and 150 * MB < took < 220 * MB


def test_less_than_at_an_earlier_time_is_not_known():
    before = Resident(now=10, most=100)
    assert process_memory.beyond(before, Resident(now=12, most=100)) == 0
    assert process_memory.beyond(before, Resident(now=12, most=130)) == 120
