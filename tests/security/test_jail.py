"""The sandbox: chosen, proved before it grades, with nothing left behind.

tests/security/test_attacks.py tries to get out of it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from common.paths import ROOT
from grading import proof
from grading.jail import choice, limits, processes, sandbox, syscalls, usage, users, visible
from grading.worker.allowance import Allowance
from grading.worker.client import WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session
from tests.processes import SLEEP, sleeping, until

pytestmark = pytest.mark.slow

BACKENDS = ("bubblewrap", "landlock")


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    if problem := choice.JAILS[request.param].problem():
        pytest.skip(f"there is no {request.param} here: {problem}")
    return choice.JAILS[request.param]


def test_a_process_that_ends_while_processes_are_listed_does_no_harm(monkeypatch):
    ended = "/proc/4194305"  # beyond the largest process id that Linux gives
    listed = users.glob.glob
    monkeypatch.setattr(users.glob, "glob", lambda pattern: [ended, *listed(pattern), ended])
    assert users.free_uid() not in {os.getuid(), 0}
    assert users.process_limit(False) >= limits.PROCESSES


def test_two_containers_whose_processes_have_the_same_numbers_take_different_users():
    uids, inside = [], os.stat("/proc/self/ns/pid").st_ino
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 7)
        for number in (inside, inside + 1):
            patch.setattr(
                os, "stat", lambda path, number=number: os.stat_result([0, number, *[0] * 8])
            )
            uids.append(users.free_uid())
    assert uids[0] != uids[1]


def test_a_thread_that_ends_while_children_are_listed_hides_none(monkeypatch):
    child, listed = subprocess.Popen(["sleep", SLEEP]), os.listdir
    monkeypatch.setattr(
        os,
        "listdir",
        lambda path: [*["4194305"] * str(path).endswith("/task"), *listed(path)],
    )
    try:
        assert child.pid in processes.children(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_a_number_that_is_another_user_s_process_by_now_is_left_alone(monkeypatch):
    def refuse(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    processes.kill([os.getpid()])


def test_a_folder_that_is_a_file_by_now_is_not_counted(monkeypatch, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(bytes(10_000))
    listed = os.scandir

    def swapped(path):
        if str(path).endswith("folder"):
            raise NotADirectoryError
        return listed(path)

    before = usage.folder_bytes(tmp_path)
    monkeypatch.setattr(os, "scandir", swapped)
    assert usage.folder_bytes(tmp_path) == before > 0


@pytest.fixture(scope="module")
def fork_server(backend):
    with contextlib.closing(ForkServer(jail=backend, bare=True)) as fork_server:
        yield fork_server


def call(fork_server, text, name="f"):
    """What a function of a cell returns, in a fresh worker."""
    worker = WorkerClient(fork_server)
    try:
        worker.request("execute", text, "cell", allowance=Allowance(60))
        return worker.request("call", name, (), (), allowance=Allowance(60))
    finally:
        worker.end()


def test_the_best_jail_is_chosen_or_a_sentence_says_why_there_is_none(monkeypatch):
    working = [name for name in BACKENDS if choice.JAILS[name].problem() is None]
    assert not working or choice.choose().name == working[0]
    assert choice.choose("none").name == "none"
    for name in BACKENDS:
        monkeypatch.setattr(type(choice.JAILS[name]), "problem", lambda self: "it is not there")
    with pytest.raises(
        choice.JailError,
        match=r"No sandbox.*\(bubblewrap: it is not there; landlock: it is not there\).*--unsafe",
    ):
        choice.choose()
    with pytest.raises(choice.JailError, match="The sandbox landlock is not available"):
        choice.choose("landlock")
    with pytest.raises(choice.JailError, match="one of bubblewrap, landlock, none"):
        choice.choose("zoo")


def test_other_systems_have_no_sandbox(monkeypatch):
    monkeypatch.setattr(syscalls, "known_machine", lambda: False)
    with pytest.raises(choice.JailError, match="only Linux"):
        choice.choose()


def test_the_jail_is_proved(backend, tmp_path):
    (tmp_path / "ada").mkdir()
    proof.prove(backend, [tmp_path])


class Paper(sandbox.NoJail):
    """It claims to be a sandbox, and stops nothing."""

    name = "of paper"


def test_a_jail_that_does_not_hold_grades_nothing(tmp_path):
    (tmp_path / "ada").mkdir()
    with pytest.raises(choice.JailError, match="does not hold") as caught:
        proof.prove(Paper(), [tmp_path])
    for escape in (
        f"read {tmp_path}",
        f"read {ROOT}/solutions",
        "reach the network",
        f"start {limits.PROCESSES + 8} processes",
        "write outside",
        "signal the grader",
        "end the fork server",
    ):
        assert escape in str(caught.value)


def test_a_jail_with_one_hole_is_found_out(backend, monkeypatch):
    readable = visible.readable()
    monkeypatch.setattr(visible, "readable", lambda: [*readable, str(ROOT / "solutions")])
    with pytest.raises(
        choice.JailError, match=f"a worker could read {ROOT}/solutions; nothing is graded"
    ):
        proof.prove(backend)


def test_a_jail_that_does_not_start_is_not_used(backend, monkeypatch):
    monkeypatch.setattr(visible, "SYSTEM", ())
    monkeypatch.setattr(visible, "readable", lambda: [])
    assert backend.problem()


def test_what_a_worker_sees_holds_nothing_of_the_class(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), "", "/", os.getcwd()]))
    monkeypatch.setenv("CANVAS_TOKEN", "secret")
    monkeypatch.setattr(sys, "path", [str(ROOT), "/", *sys.path])
    for path in map(Path, visible.readable()):
        assert (
            not ROOT.is_relative_to(path)
            and "tests" not in path.parts
            and "solutions" not in path.parts
        )
    assert "secret" not in str(choice.JAILS["bubblewrap"].environment())


def test_what_labs_do_works_inside(fork_server):
    text = """
import multiprocessing, os, subprocess, sys, tempfile, threading
import matplotlib.pyplot as plt, numba, numpy as np, torch
@numba.njit
def twice(x):
    return 2 * x
def f():
    plt.plot([1, 2])
    plt.savefig("figure.png")
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "a"), "w") as file:
        file.write("a")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    child.join()
    command = [sys.executable, "-c", "import numpy; print(numpy.ones(3).sum())"]
    printed = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    product = float(torch.ones(2) @ torch.ones(2))
    return twice(21), os.path.getsize("figure.png") > 0, child.exitcode, printed, product
"""
    assert call(fork_server, text) == (42, True, 0, "3.0", 2.0)


def test_workers_see_nothing_of_one_another(fork_server):
    first = WorkerClient(fork_server)
    first.request(
        "execute",
        "open('mine', 'w').close()\ndef where():\n    import os; return os.getcwd(), os.getpid()",
        "cell",
        allowance=Allowance(60),
    )
    folder, pid = first.request("call", "where", (), (), allowance=Allowance(60))
    assert call(
        fork_server,
        f"""
import os
def f():
    try:
        others = [name for name in os.listdir("/proc") if name.isdecimal() and int(name) > 10]
        others = [name for name in others if name != str(os.getpid())]
        return os.path.exists({folder!r} + "/mine") and bool(os.listdir({folder!r})), others
    except OSError:
        return False, []
""",
    ) == (False, [])
    first.end()


def test_a_fork_server_that_was_killed_is_replaced(fork_server):
    worker = WorkerClient(fork_server)
    before, lost = fork_server.process, fork_server.lost
    server = next(
        pid
        for pid in processes.tree(before.pid)
        if "bwrap" not in Path(f"/proc/{pid}/comm").read_text()
    )
    os.kill(server, signal.SIGKILL)
    before.wait()
    assert worker.end() is not None and fork_server.lost == lost + 1
    assert call(fork_server, "def f():\n    return 1") == 1
    assert fork_server.process is not before


def test_nothing_outlives_a_grader_that_is_killed(backend):
    script = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from grading.jail import choice
from grading.worker.allowance import Allowance
from grading.worker.client import WorkerClient
from grading.worker.fork_server import ForkServer
worker = WorkerClient(ForkServer(jail=choice.JAILS[{backend.name!r}], bare=True))
text = "import subprocess\\nsubprocess.Popen(['sleep', '{SLEEP}'], start_new_session=True)"
worker.request("execute", text, "cell", allowance=Allowance(60))
print("ready", flush=True)
worker.request("execute", "while True: pass", "cell", allowance=Allowance(60))
"""
    grader = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert grader.stdout and grader.stdout.readline() == "ready\n"
    until(sleeping)  # its command line comes a moment after Popen has returned
    grader.kill()
    grader.wait()
    grader.stdout.close()
    until(lambda: not sleeping())


def test_nothing_is_left_on_the_disk(backend, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    os.chmod(tmp_path, 0o711)
    os.chmod(tmp_path.parent, 0o711)
    os.chmod(tmp_path.parent.parent, 0o711)
    with contextlib.closing(ForkServer(jail=backend, bare=True)) as fork_server:
        call(
            fork_server,
            """
import os
def f():
    os.makedirs('a/b')
    open('a/c', 'w').close()
    os.mkdir('locked', 0)
""",
        )
        left = list(tmp_path.glob("*/tmp*"))
    assert not left and not list(tmp_path.iterdir())


def test_an_alarm_in_the_middle_of_a_word_to_the_fork_server_comes_after_it(
    fork_server, monkeypatch
):
    def ring(*_):
        raise TimeoutError

    WorkerClient(fork_server).end()
    send = socket.send_fds

    def send_and_ring(*arguments):
        send(*arguments)
        os.kill(os.getpid(), signal.SIGPROF)  # to any thread, as the system does

    monkeypatch.setattr(socket, "send_fds", send_and_ring)
    old = signal.signal(signal.SIGPROF, ring)
    server, other = fork_server.process, threading.Thread(target=time.sleep, args=(0.5,))
    other.start()
    try:
        with pytest.raises(TimeoutError):
            WorkerClient(fork_server)
    finally:
        signal.signal(signal.SIGPROF, old)
        monkeypatch.undo()
        other.join()
    assert call(fork_server, "def f():\n    return 1") == 1 and fork_server.process is server


def test_where_memory_is_short_a_worker_ends_before_the_user_s_programs(fork_server):
    assert (
        call(fork_server, "def f():\n    return open('/proc/self/oom_score_adj').read()")
        == "1000\n"
    )
    assert Path("/proc/self/oom_score_adj").read_text() != "1000\n"


@pytest.fixture(scope="module")
def with_gpu(backend):
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(ForkServer(jail=backend, bare=True)) as fork_server,
    ):
        patch.setattr(
            visible, "devices", lambda: ["/dev/zero"]
        )  # stands for a GPU; tests/security/test_jail_gpu.py has one
        WorkerClient(fork_server).end()
        yield fork_server


def test_with_a_gpu_the_devices_are_there_and_addresses_have_no_limit(with_gpu):
    text = """
import resource
def f():
    return resource.getrlimit(resource.RLIMIT_AS)[0], len(open('/dev/zero', 'rb').read(8))
"""
    assert call(with_gpu, text) == (-1, 8)


DRIVER = """
import os, socket, threading
def ours():
    os.ftruncate(os.memfd_create("x"), 4096)
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        listening = socket.socket(socket.AF_UNIX, kind)
        listening.bind(f"\\0cuda-uvmfd-{os.getpid()}-{kind}")
        listening.listen()
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("cuda-thread")
def works(make):
    try:
        make()
        return True
    except OSError:
        return False
def f():
    thread = threading.Thread(target=lambda: done.append(works(ours)))
    done = []
    thread.start()
    thread.join()
    stream = socket.socket(socket.AF_UNIX)
    refused = [
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        lambda: socket.socket(socket.AF_INET),
        lambda: stream.accept(),
        lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        lambda: stream.connect("PLACE"),
        lambda: stream.connect(chr(0) + "PLACE"),
    ]
    return done, [works(make) for make in refused]
"""


def test_with_a_gpu_its_driver_can_start_and_nobody_is_reached(with_gpu):
    with (
        socket.socket(socket.AF_UNIX) as listening,
        socket.socket(socket.AF_UNIX) as abstract,
        tempfile.TemporaryDirectory() as folder,
    ):
        os.chmod(folder, 0o755)
        listening.bind(path := f"{folder}/socket")
        os.chmod(path, 0o777)
        abstract.bind(f"\0{path}")
        listening.listen()
        abstract.listen()
        assert call(with_gpu, DRIVER.replace("PLACE", path)) == ([True], [False] * 6)


def test_with_a_gpu_files_without_a_name_count(with_gpu):
    hoard = """
import os, time
def f():
    for _ in range(8):
        os.write(os.memfd_create('x'), bytes(60 << 20))
    time.sleep(20)
"""
    with pytest.raises(WorkerEnded, match="killed"):
        call(with_gpu, hoard)
    zombies = """
import os, time
def f():
    for _ in range(8):
        if not os.fork():
            os._exit(0)
    time.sleep(1)
    return 1
"""
    assert call(with_gpu, zombies) == 1  # of which nothing may be read


def test_several_workers_at_once_and_one_that_bombs(fork_server):
    source = """
import os
def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass
def f():
    return 1
"""
    sessions = [Session(fork_server, [("cell", source)]) for _ in range(3)]
    sessions[0].allow(1)
    with pytest.raises(WorkerEnded):
        sessions[0].call("bomb")
    for session in sessions[1:]:
        session.allow(30)
        assert session.call("f") == 1
        session.close()
    sessions[0].close()


def test_the_limits_are_those_that_the_security_page_promises():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert f"| memory | {limits.MEMORY_BYTES >> 30} GB" in page
    assert f"{limits.SCRATCH_BYTES >> 20} MB, {limits.SCRATCH_FILES:,} files" in page
    assert f"{limits.FILE_BYTES >> 20} MB per file" in page
    assert f"| processes | {limits.PROCESSES - (os.cpu_count() or 1)} and one per CPU core" in page
    assert f"{limits.GROUP_BYTES >> 30} GB and {limits.GROUP_PROCESSES:,} processes" in page
