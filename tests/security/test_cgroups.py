"""Control groups, of version 1 or 2: found where the system delegates one; nothing outlives them.

Where this user can make none, the tests of their limits are skipped. On version 2 these tests were
run as root and as the user of a delegated group.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grading.jail import cgroups, choice, processes
from grading.worker.allowance import Allowance
from grading.worker.client import WorkerClient
from grading.worker.fork_server import ForkServer
from tests.processes import SLEEP, sleeping, until

pytestmark = pytest.mark.slow


@pytest.fixture
def hierarchy(tmp_path, monkeypatch):
    """Folders that stand for mounted hierarchies, as (own, made) say."""

    def make(own, made):
        for folder, handed_on in made.items():
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "cgroup.subtree_control").write_text(handed_on)
        (tmp_path / "own").write_text(own)
        monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
        monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
        return tmp_path

    return make


@pytest.mark.parametrize(
    "own, made, expected",
    [
        (
            "5:memory:/a\n4:pids:/a/b\n0::/x",
            {"memory/a": "", "pids/a/b": ""},
            {"memory/a": {"memory"}, "pids/a/b": {"pids"}},
        ),
        (
            "5:memory:/a\n0::/user/shell",
            {"memory/a": "", "user": "pids"},
            {"memory/a": {"memory"}, "user": {"pids"}},
        ),
        (
            "0::/user/shell",
            {"user/shell": "", "user": "cpu memory pids"},
            {"user": {"memory", "pids"}},
        ),
        (
            "0::/user/app/shell",
            {"user/app/shell": "", "user/app": "memory", "user": "memory pids"},
            {"user": {"memory", "pids"}},
        ),
        ("0::/user/shell", {"user/shell": "", "user": ""}, None),
        ("0::/../shell", {"user": ""}, None),
    ],
    ids=[
        "version 1",
        "both versions",
        "version 2",
        "controllers of one group",
        "nothing delegated",
        "outside of this namespace",
    ],
)
def test_the_nearest_group_that_delegates_is_found(hierarchy, own, made, expected):
    folder = hierarchy(own, made)
    if expected is None:
        with pytest.raises(OSError, match="no control group"):
            cgroups.parents()
        with cgroups.group(1 << 30, 100) as prefix:
            assert not prefix
    else:
        assert {
            str(path.relative_to(folder)): set(names) for path, names in cgroups.parents().items()
        } == expected


def test_a_group_that_can_t_be_joined_is_not_used(hierarchy, monkeypatch):
    folder = hierarchy("0::/user/shell", {"user/shell": "", "user": "memory pids"})
    monkeypatch.setattr(cgroups, "JOIN", "exit 1")
    monkeypatch.setattr(cgroups, "ENDING_S", 0.1)
    with cgroups.group(1 << 30, 100) as prefix:
        assert not prefix and [
            path.name for path in (folder / "user").glob("grading-*")
        ]  # files that no kernel takes away


# What a kernel does


@pytest.fixture
def limited():
    """What group(...) puts before a command, and the folders that it makes."""

    @contextlib.contextmanager
    def make(memory_bytes, processes):
        with cgroups.group(memory_bytes, processes) as prefix:
            if not prefix:
                pytest.skip("this user can't make a control group here")
            yield prefix, [Path(word) for word in prefix if "/grading-" in word]

    return make


def run(prefix, text):
    return subprocess.run(
        [*prefix, sys.executable, "-S", "-c", text], stdout=subprocess.PIPE, text=True, timeout=600
    )


def test_processes_are_counted_together(limited):
    bomb = """
import os, time
while True:
    try:
        os.fork() or time.sleep(0.5)
    except OSError:
        print('refused', flush=True)
        break
"""
    with limited(1 << 30, 20) as (prefix, folders):
        assert "refused" in run(prefix, bomb).stdout
        current = next(path for folder in folders for path in folder.glob("pids.current"))
        assert int(current.read_text()) <= 20
    assert not any(folder.exists() for folder in folders)


def test_memory_is_counted_together(limited):
    """Ten gigabytes, of 20 children that each take less than the limit."""
    spread = """
import os, time
for _ in range(20):
    if not os.fork():
        kept = bytearray(1) * (512 << 20)
        time.sleep(50)
        os._exit(0)
for _ in range(18):  # two have room
    assert os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) == -9
print("18 were ended")
os.killpg(0, 9)
"""
    limit = 1 << 30
    with limited(limit, 100) as (prefix, folders):
        done = run(["setsid", *prefix], spread)
        peak = next(
            path
            for folder in folders
            for name in ("memory.peak", "memory.max_usage_in_bytes")
            for path in folder.glob(name)
        )
        assert limit // 2 < int(peak.read_text()) <= limit
        assert done.returncode == -signal.SIGKILL


def test_nothing_goes_to_the_swap(limited):
    with limited(1 << 30, 20) as (_, folders):
        swap = [path for folder in folders for path in folder.glob(cgroups.SWAP)]
        if not swap:
            pytest.skip("version 1, or a kernel without swap")
        assert swap[0].read_text().strip() == "0"


def test_what_is_left_ends_with_the_group(limited):
    orphan = f"""
import os
os.close(1)
for _ in range(5):
    if not os.fork():
        os.setsid()
        os.fork()
        os.execlp('sleep', 'sleep', '{SLEEP}')
"""
    with limited(1 << 30, 50) as (prefix, folders):
        run(prefix, orphan)
        until(lambda: len(sleeping()) == 10, within_s=120)
    assert not sleeping() and not any(folder.exists() for folder in folders)


def test_a_killed_grader_s_group_is_cleared_by_the_next(limited):
    script = f"""
import subprocess, sys
from grading.jail import cgroups
with cgroups.group(1 << 30, 20) as prefix:
    subprocess.Popen([*prefix, "sleep", "{SLEEP}"], stdout=subprocess.DEVNULL)
    print(*prefix, flush=True)
    sys.stdin.read()
"""
    with limited(1 << 30, 20):
        pass
    grader = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert grader.stdout
    left = [Path(word) for word in grader.stdout.readline().split() if "/grading-" in word]
    until(sleeping, within_s=120)
    grader.kill()
    grader.communicate()
    assert all(folder.exists() for folder in left) and sleeping()
    with limited(1 << 30, 20):
        assert not sleeping() and not any(folder.exists() for folder in left)


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_what_a_jail_s_fork_server_leaves_ends(limited, name):
    if problem := choice.JAILS[name].problem():
        pytest.skip(f"there is no {name} here: {problem}")
    with limited(1 << 30, 20):
        pass
    with contextlib.closing(ForkServer(jail=choice.JAILS[name], bare=True)) as fork_server:
        worker = WorkerClient(fork_server)
        text = f"""
import subprocess
for _ in range(3):
    subprocess.Popen(['sleep', '{SLEEP}'], start_new_session=True)
"""
        worker.request("execute", text, "cell", allowance=Allowance(60))
        until(lambda: len(sleeping()) == 3, within_s=120)
        assert fork_server.process
        for pid in processes.tree(fork_server.process.pid):
            with contextlib.suppress(
                FileNotFoundError, ProcessLookupError
            ):  # it may end with the one before
                if "sleep" not in Path(f"/proc/{pid}/comm").read_text():
                    os.kill(pid, signal.SIGKILL)
    assert not sleeping()


def test_another_user_s_group_is_not_waited_for(hierarchy, monkeypatch):
    folder = (
        hierarchy("0::/user", {"user": "memory pids"}) / "user" / f"{cgroups._prefix()}4194305-1"
    )  # of no process
    folder.mkdir()

    def refuse(folder):
        raise PermissionError

    monkeypatch.setattr(cgroups, "_kill", refuse)
    monkeypatch.setattr(cgroups.time, "sleep", lambda seconds: pytest.fail("waited"))
    cgroups.remove([folder])
