"""A worker's time: what it computes or sleeps, however busy the machine is."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from grading.worker import allowance
from grading.worker.allowance import Allowance, Meter
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from grading.worker.transport import START, SocketTransport, WireTimeout

needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="the system does not say what processes compute"
)
CELL = """
import os, signal, subprocess, sys, time

def on_core(core):
    os.sched_setaffinity(0, {core})

def compute(seconds):
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass
    return "done"

def sleep(seconds):
    time.sleep(seconds)
    return "done"

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

def in_a_child(seconds):
    text = "import time\\nwhile time.process_time() < %r: pass" % seconds
    subprocess.run([sys.executable, "-S", "-c", text])
    return "done"
"""
BUSY = 4  # programs that compute on the worker's core


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer(bare=True)
    yield fork_server
    fork_server.close()


@pytest.fixture
def session(fork_server):
    session = Session(fork_server, [("cell", CELL)])
    session.running_worker()
    yield session
    session.close()


@pytest.fixture
def busy(session):
    """The worker shares its core with programs that never rest."""
    core = min(os.sched_getaffinity(0))
    text = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-S", "-c", text]
    with contextlib.ExitStack() as stack:
        for _ in range(BUSY):  # each in a session of its own: the kernel may share by sessions
            program = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            stack.enter_context(program)
            stack.callback(program.kill)
            assert program.stdout and program.stdout.readline()
        session.allow(60)
        session.call("on_core", (core,))
        yield


def ended(session, name, *arguments):
    """How many seconds of the clock it took until a call was stopped."""
    began_s = time.monotonic()
    with pytest.raises(WorkerEnded, match="took too long and was stopped") as problem:
        session.call(name, arguments)
    assert problem.value.status == "timeout"
    return time.monotonic() - began_s


@pytest.mark.slow
@needs_proc
def test_a_right_answer_is_not_ended_because_the_machine_is_busy(session, busy):
    session.allow(0.8)
    began_s = time.monotonic()
    assert session.call("compute", (0.5,)) == "done"
    assert time.monotonic() - began_s > 0.8, "nothing else was computed: this proves nothing"
    assert session.check.left_s > 0


@needs_proc
def test_an_answer_that_computes_too_long_is_ended_on_a_busy_machine_too(session, busy):
    session.allow(0.3)
    ended(session, "compute", 1e6)


@pytest.mark.parametrize("name, arguments", [("sleep", [1e6]), ("stop", []), ("compute", [1e6])])
def test_who_sleeps_is_stopped_or_computes_for_ever_is_ended(session, name, arguments):
    session.allow(0.5)
    assert ended(session, name, *arguments) >= 0.4


@needs_proc
def test_the_clock_ends_who_seems_to_wait_for_a_processor(session, monkeypatch):
    """A program can look so: it has ten times its seconds, and no more."""
    monkeypatch.setattr(session.worker.meter, "is_asleep", lambda: False)
    session.allow(0.1)
    assert ended(session, "sleep", 1e6) >= 0.1 * allowance.BUSIEST - 0.1


@needs_proc
def test_what_a_child_computes_is_the_worker_s(session):
    session.allow(60)
    assert session.call("in_a_child", (0.3,)) == "done"
    session.settle()
    assert session.check.taken_s > 0.2  # the child has ended
    session.allow(0.5)
    ended(session, "in_a_child", 1e6)


def test_short_calls_add_up(session):
    session.allow(0.5)
    with pytest.raises(WorkerEnded, match="took too long"):
        for _ in range(1000):
            session.call("compute", (0.05,))


def test_an_answer_that_comes_byte_by_byte_is_ended():
    here, there = socket.socketpair()
    with here, there:
        meter = Meter(lambda: 0.0, lambda: True)  # its sender computes nothing, and sleeps
        meter.begin(Allowance(0.6))
        ended = threading.Event()

        def drip():
            there.send(START.pack(1, 1000))
            while not ended.wait(0.05):
                there.send(b"x")

        sender = threading.Thread(target=drip)
        sender.start()
        try:
            with pytest.raises(WireTimeout):
                SocketTransport(here).receive(meter)
        finally:
            ended.set()
            sender.join()


def test_a_notebook_and_its_cells_count_what_was_taken_and_not_the_clock(session):
    session.allow(60)
    session.call("sleep", (0.6,))
    session.call("compute", (0.3,))
    session.settle()
    assert session.check.taken_s >= 0.5
    assert session.notebook.taken_s == pytest.approx(session.check.taken_s, abs=0.2)


def test_a_meter_charges_processors_sleep_or_a_share_of_the_clock():
    told = {"computed": 0.0, "asleep": False}
    meter = Meter(lambda: told["computed"], lambda: told["asleep"])
    meter.begin(whole := Allowance(100, within=Allowance(200)))
    for computed_s, asleep, waited_s, charged_s in [
        (2.0, False, 8.0, 2.0),  # it computed
        (2.0, False, 8.0, 0.8),  # it waited for a processor: a tenth of the clock
        (2.0, True, 0.2, 0.2),  # it slept
        (2.0, True, 1.0, allowance.LOOK_S),  # the grader looked late: who knows for how long
        (1.0, False, 0.0, 0.0),  # a child is gone, with its seconds
        (2.5, False, 0.1, 0.5),
    ]:
        told |= {"computed": computed_s, "asleep": asleep}
        before_s, meter.waited_s = whole.left_s, waited_s
        meter.look()
        assert before_s - whole.left_s == pytest.approx(charged_s), (computed_s, asleep, waited_s)
    assert whole.within and whole.within.taken_s == whole.taken_s
