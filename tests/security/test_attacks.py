"""The attacks (tests/security/attacks): each gets its honest score and harms nothing.

The next submission is graded right.
"""

import contextlib
import functools
import os
import re
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import grading.worker.wire
from common.paths import ROOT
from grading import score
from grading.jail import choice, processes
from grading.jail.sandbox import Jail
from grading.source.holes import Answer
from grading.worker.client import WorkerClient
from grading.worker.fork_server import ForkServer
from tests.mini_lab import mini_lab

pytestmark = pytest.mark.slow("tests/security/attacks/*.py")

LIMITS_S = {
    "memory": 3.0
}  # of the check of an attack that may last until it is stopped, other than 1 s
PATIENCE_S = 60.0  # for any other, on a machine that other tests keep busy
LAB = mini_lab()
LAB = replace(
    LAB, cells=tuple(cell for cell in LAB.cells if "held-out" not in cell.tags)
)  # one check per exercise
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}
ASKED = {"double", "scale_", "predicted"}
MEMORY_BYTES = 1 << 29
FAMILIES = ("processes", "memory", "files", "network", "channels", "python", "wire")
WIRE = """\
import json, struct, sys, time
def wire():
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "wire"):
        frame = frame.f_back
    return frame.f_locals["self"].wire.transport.socket
def frame(header, *buffers):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    lengths = [len(text), *map(len, buffers)]
    return struct.pack(f"<I{len(lengths)}Q", len(lengths), *lengths) + text + b"".join(buffers)
def answer(value, kind="value", containers=None, storages=None):
    containers, storages = containers or [], storages or []
    return {"kind": kind, "value": value, "containers": containers, "storages": storages}
def reported(kind, text):
    exception = {"type": kind, "text": text, "line": None, "code": None}
    pairs = [[key, value] for key, value in exception.items()]
    return answer(["ref", 0], kind="error", containers=[["dict", pairs]])
"""


def cases(family):
    """[(title, {"gets": ..., "says": ...}, text)] of one file."""
    text = (ROOT / "tests" / "security" / "attacks" / f"{family}.txt").read_text()
    for case in re.split(r"^%% ", text, flags=re.MULTILINE)[1:]:
        title, rest = case.split("\n", 1)
        parts = re.match(r"((?:(?:gets|says|others): [^\n]*\n)+)(.*)", rest, re.DOTALL)
        assert parts, title
        promises, rest = parts.groups()
        yield pytest.param(
            family,
            dict(line.split(": ", 1) for line in promises.splitlines()),
            rest,
            id=f"{family}: {title}",
        )


ATTACKS = [case for family in FAMILIES for case in cases(family)]
BACKENDS = [
    name for name in ("bubblewrap", "landlock") if choice.JAILS[name].problem() is None
] or ["bubblewrap"]
CASES = [
    pytest.param(backend, *case.values, id=f"{backend}-{case.id}")
    for backend in BACKENDS
    for case in ATTACKS
    if backend == BACKENDS[0] or case.values[0] in FAMILIES[:5]
]  # what is within Python is the same in each jail


class Arena:
    """A fork server in a sandbox, and what an attack could reach for: sockets, others' files."""

    def __init__(self, jail, folder):
        self.fork_server, self.outside = ForkServer(jail=jail, bare=True), folder
        self.tcp, self.udp = self.of_one_port()
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "socket"))
        self.abstract.bind(f"\0{self.tcp.getsockname()[1]}")
        self.mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.mailbox.bind(str(folder / "mailbox"))
        self.listening = (self.tcp, self.udp, self.unix, self.abstract, self.mailbox)
        for listener in self.listening:
            listener.setblocking(False)
            if listener.type == socket.SOCK_STREAM:
                listener.listen()
        (folder / "secret").write_text("secret")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        self.before = self.state()
        WorkerClient(self.fork_server).end()
        self.family = self.processes()

    @staticmethod
    def of_one_port():
        while True:
            tcp, udp = (
                socket.create_server(("127.0.0.1", 0)),
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            )
            try:
                udp.bind(tcp.getsockname())
                return tcp, udp
            except OSError:  # another program has that port for datagrams
                tcp.close()
                udp.close()

    def fill_in(self, text):
        """An attack's text, with the names of what it reaches for."""
        names = {
            "OUTSIDE": self.outside,
            "ROOT": ROOT,
            "LIBRARY": torch.__file__,
            "PORT": self.tcp.getsockname()[1],
            "GRADER": os.getpid(),
            "UNIX": self.outside / "socket",
            "MAILBOX": self.outside / "mailbox",
        }
        return re.sub("|".join(names), lambda match: str(names[match[0]]), text)

    def state(self):
        """What an attack must leave as it is."""
        files = [
            *self.outside.iterdir(),
            *map(Path, (grading.worker.wire.__file__, torch.__file__, np.__file__)),
        ]
        return {
            path: (path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_size)
            for path in files
        }

    def processes(self):
        process = self.fork_server.process
        assert process
        return set(processes.tree(process.pid))

    def insist_on_no_harm(self):
        assert self.state() == self.before
        for listener in self.listening:
            with pytest.raises(BlockingIOError):
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(1)
        assert (
            self.processes() == self.family
        )  # the fork server is the same one, and nothing else runs

    def close(self):
        self.fork_server.close()
        for listener in self.listening:
            listener.close()


def with_less_memory(sandbox: Jail, patch: pytest.MonkeyPatch) -> Jail:
    confinement = sandbox.confinement

    @contextlib.contextmanager
    def smaller():
        with confinement() as inside:
            inside.memory_bytes = MEMORY_BYTES
            yield inside

    patch.setattr(sandbox, "confinement", smaller)
    return sandbox


@pytest.fixture(scope="module")
def arenas(tmp_path_factory):
    """The arena of a backend, made at its first use."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_TOKEN", "secret")

        @functools.cache
        def arena(backend):
            if problem := choice.JAILS[backend].problem():
                pytest.skip(f"there is no {backend} here: {problem}")
            small = with_less_memory(choice.JAILS[backend], patch)
            return stack.enter_context(
                contextlib.closing(Arena(small, tmp_path_factory.mktemp("outside")))
            )

        yield arena


def results(fork_server, text=None, limit_s=PATIENCE_S):
    answers = SOLUTION | ({"double": Answer(text)} if text else {})
    lab = replace(
        LAB,
        cells=tuple(
            replace(cell, limit_s=limit_s if "double(" in cell.source else PATIENCE_S)
            for cell in LAB.cells
        ),
    )
    return {
        result.exercise.split()[1]: result
        for result in score.score(lab, answers, fork_server, only=ASKED)
    }


@pytest.mark.parametrize("backend, family, promises, text", CASES)
def test_an_attack_gets_its_honest_score_and_harms_nothing(arenas, backend, family, promises, text):
    arena, limit_s = (
        arenas(backend),
        LIMITS_S.get(family, 1.0) if "timeout" in promises["gets"] else PATIENCE_S,
    )
    graded = results(
        arena.fork_server, arena.fill_in(WIRE + text if family == "wire" else text), limit_s
    )
    got = graded["double"]
    assert f"{got.status} {got.points}" in promises["gets"].split(" or "), got
    assert promises.get("says", "") in got.message
    got.message.encode()
    assert len(got.message) < 5000
    assert graded["scale_"].status == graded["predicted"].status == "passed" or "others" in promises
    arena.insist_on_no_harm()
    assert {result.status for result in results(arena.fork_server).values()} == {"passed"}


def test_the_catalogue_is_long():
    assert len(ATTACKS) >= 60 and len({case.id for case in ATTACKS}) == len(ATTACKS)
