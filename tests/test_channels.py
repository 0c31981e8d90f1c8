"""Two workers leave no message for each other where they may write (see attacks/channels.txt)."""

import pytest

from grading.jail import choice
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session

CELL = """
import ctypes, multiprocessing, os, signal, tempfile, threading

def leave():
    for folder in (tempfile.gettempdir(), "/tmp", "/dev/shm", os.getcwd(), os.path.expanduser("~")):
        try:
            open(os.path.join(folder, "message"), "w").write("42")
        except OSError:
            pass
    ctypes.CDLL(None).sem_open(b"/message", 0o100, 0o600, 1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["MESSAGE"] = "42"
    return os.getpid()

def found():
    places = []
    for folder in (tempfile.gettempdir(), "/tmp", "/dev/shm", os.getcwd(), os.path.expanduser("~")):
        try:
            places += [name for name in os.listdir(folder) if "message" in name]
        except OSError:
            pass
    return places + [name for name in os.environ if name == "MESSAGE"]

def processes_seen():
    try:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()), os.getpid()
    except OSError:
        return [os.getpid()], os.getpid()

def shared():
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except OSError:
            pass
    with open("/proc/self/maps") as file:
        written = [line for line in file if line.split()[1][1::2] == "ws"]
    return sorted(set(descriptors)), written

def threads():
    done = []
    several = [threading.Thread(target=done.append, args=(i,)) for i in range(8)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    lock = threading.Condition()
    with lock:
        lock.wait(0.01)
    return len(done)
"""


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def two(request):
    if problem := choice.JAILS[request.param].problem():
        pytest.skip(f"there is no {request.param} here: {problem}")
    fork_server = ForkServer(jail=choice.JAILS[request.param], bare=True)
    sessions = [Session(fork_server, [("cell", CELL)]) for _ in range(2)]
    for session in sessions:
        session.allow(60)
        session.running_worker()
    yield sessions
    for session in sessions:
        session.close()
    fork_server.close()


def test_what_one_worker_leaves_another_does_not_find(two):
    first, second = two
    first.call("leave")
    assert first.call("found")
    assert second.call("found") == []


def test_a_worker_sees_itself_alone(two):
    seen, own = two[1].call("processes_seen")
    assert seen == [own]


def test_workers_share_no_open_file_and_no_memory_that_they_could_write(two):
    """An inherited file would have one place for both to read and to set."""
    assert two[1].call("shared") == (["/dev/null", "socket"], [])


def test_threads_and_their_locks_work(two):
    """They wait by futexes; those between processes are refused."""
    assert two[0].call("threads") == 8
