"""The second process, which interprets or compiles: calls, errors, interrupts, forks."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.paths import ROOT
from nogpu.kernels.errors import KernelError
from nogpu.tiles import process


@pytest.fixture
def interpreting():
    started = process.TritonProcess(interpret=True)
    yield started
    started.end()


def test_a_call_returns_and_prints_here(interpreting, capsys):
    assert interpreting.call(os.getpid) == interpreting.process.pid
    assert interpreting.call(os.getenv, "TRITON_INTERPRET") == "1"
    interpreting.call(print, "there", end=".\n")
    assert capsys.readouterr().out == "there.\n"


def test_the_other_one_compiles(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    compiles = process.TritonProcess(interpret=False)
    assert compiles.call(os.getenv, "TRITON_INTERPRET") is None
    compiles.end()


def test_an_error_is_raised_here_and_the_process_lives_on(interpreting):
    with pytest.raises(ZeroDivisionError):
        interpreting.call(divmod, 1, 0)
    with pytest.raises(KernelError, match="wrong"):
        interpreting.call(refuse, "wrong")
    with pytest.raises(RuntimeError, match="TimeoutExpired: Command"):
        interpreting.call(subprocess.run, ["sleep", "9"], timeout=0.01)
    assert interpreting.alive


def refuse(text):
    raise KernelError(text)


def test_a_dead_process_is_a_clear_error_and_replaced():
    first = process.process_for(interpret=True)
    with pytest.raises(RuntimeError, match="the process that runs Triton for this one has died"):
        first.call(os._exit, 3)
    assert not first.alive
    second = process.process_for(interpret=True)
    assert second is not first and second is process.process_for(interpret=True)
    second.end()


def test_an_interrupted_process_ends(interpreting, monkeypatch):
    def interrupted(file):
        raise KeyboardInterrupt

    monkeypatch.setattr(process.pickle, "load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        interpreting.call(time.sleep, 60)
    assert not interpreting.alive


def test_a_fork_does_not_inherit_it(interpreting):
    if not (pid := os.fork()):
        os._exit(interpreting.alive)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and interpreting.alive


SCRIPT = """
import os
from nogpu.tiles.process import process_for
print("main")
print(process_for(interpret=True).call(os.getpid) != os.getpid())
"""


def test_a_script_is_not_run_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, env=environment
    )
    assert run.stdout == "main\nTrue\n", run.stderr


def test_it_ends_with_a_process_that_is_killed():
    program = (
        "import os\nfrom nogpu.tiles.process import process_for\n"
        "print(process_for(interpret=True).call(os.getpid), flush=True)\nos.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env=environment,
    )
    pid = int(killed.stdout)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
