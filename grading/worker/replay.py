"""A check that an answer passed need not be computed again: its calls are sent as they were, and the answers compared.

What a check sends follows from the lab, the seed and the answers that it gets. So an answer that gives, call by call, the same
bytes as one that passed would pass, too. At the first other byte the check itself runs: it gets the answers that were given,
and goes on from there. Right answers then cost the worker's time alone, and nothing is sent before its turn.
"""

import ast
import functools
import socket

from grading.worker.wire import READ_AHEAD_BYTES, Table, WireClosed, WireTimeout

MAX_TAPE_BYTES = 4 << 20
MAX_BYTES = 64 << 20  # of all tapes


class Diverged(BaseException):
    """A check did not repeat itself: the seed is not all that it draws from."""


class Tapes:
    """What passed, by check and seed: [(bytes sent, bytes that came)]. None for a check that can't be repeated."""

    def __init__(self) -> None:
        self.tapes, self.bytes = {}, 0

    def keep(self, key, tape) -> None:
        """Keeps the calls of a check that passed, while there is room."""
        size = sum(len(sent) + len(came) for sent, came in tape)
        if size <= MAX_TAPE_BYTES and self.bytes + size <= MAX_BYTES:
            self.bytes += size
            self.tapes.setdefault(key, tape)

    def get(self, key):
        return self.tapes.get(key)

    def spoil(self, key) -> None:
        """Marks a check that can't be repeated."""
        self.tapes[key] = None


class Recorder:
    """Stands for a wire's socket and notes what goes and comes."""

    def __init__(self, sock) -> None:
        self.socket, self.sent, self.came = sock, [], []

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def sendall(self, data):
        if len(self.sent) == len(self.came):
            self.sent.append(bytearray())
        self.sent[-1] += memoryview(data)  # an array would be added, not appended
        return self.socket.sendall(data)

    def recv(self, count, flags=0):
        data = self.socket.recv(count, flags)
        if not flags:
            self._note(data)
        return data

    def recv_into(self, view):
        count = self.socket.recv_into(view)
        self._note(view[:count])
        return count

    def _note(self, data) -> None:
        if len(self.came) < len(self.sent):
            self.came.append(bytearray())
        self.came[-1] += memoryview(data)

    @property
    def tape(self):
        return [(bytes(sent), bytes(came)) for sent, came in zip(self.sent, self.came, strict=True)]


class Prompter:
    """Stands for a wire's socket while a check runs that was replayed in part: it answers what has been answered already."""

    def __init__(self, sock, tape) -> None:
        self.socket, self.tape, self.idle = sock, tape, socket.socketpair()
        self.sent = self.place = 0

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def fileno(self):
        """Nothing comes unasked before what is known has been said."""
        return self.idle[0].fileno() if self.tape else self.socket.fileno()

    def sendall(self, data):
        if not self.tape:
            return self.socket.sendall(data)
        sent = self.tape[0][0]
        if sent[self.sent : self.sent + len(data)] != bytes(data):
            raise Diverged
        self.sent += len(data)
        return None

    def recv(self, count, flags=0):
        if not self.tape:
            return self.socket.recv(count, flags)
        if self.tape[0][1] is None:
            raise TimeoutError  # it has had its time
        data = self.tape[0][1][self.place : self.place + count]
        self._go_on(len(data))
        return data or self.socket.recv(count, flags)

    def recv_into(self, view):
        data = self.recv(len(view))
        view[: len(data)] = data
        return len(data)

    def _go_on(self, count) -> None:
        self.place += count
        if self.place == len(self.tape[0][1]):
            del self.tape[0]
            self.sent = self.place = 0


def replay(wire, tape, deadline):
    """None if the worker answers as on the tape; else what was sent and what came up to the first answer that is another,
    or that does not come in time (None).
    """
    for place, (sent, came) in enumerate(tape):
        got = b""
        try:
            wire._on_time(deadline, wire.socket.sendall, sent)
            while len(got) < len(came):
                got += wire._on_time(
                    deadline, wire.socket.recv, min(len(came) - len(got), READ_AHEAD_BYTES)
                )
                if not came.startswith(got):
                    break
        except WireClosed:
            pass
        except WireTimeout:
            got = None
        if got != came:
            return [*tape[:place], (sent, got)]
    return None


# Which checks can be replayed


def repeatable(checks):
    """The sources of a lab's checks that neither need what another check left behind nor leave what another needs."""
    spoiled = set()
    for i, first in enumerate(checks):
        for later in checks[i + 1 :]:
            if _reads(later) & _stores(first):
                spoiled |= {first, later}
    return frozenset(checks) - spoiled


@functools.cache
def _globals(source):
    """(the globals that a check reads, those of them that it has not set before, those that it sets)."""
    read, before, stored = set(), set(), set()
    for name, is_set in _names(ast.parse(source), frozenset()):
        if is_set:
            stored.add(name)
        else:
            read.add(name)
            before |= {name} - stored
    return read, before, stored


def _stores(source):
    return _globals(source)[2] - {"_"}


def _reads(source):
    return _globals(source)[1]


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LATE = (
    "targets",
    "target",
    "optional_vars",
)  # of a statement: what is set after the rest was computed


def _names(node, own):
    """(name, whether it is set) of a check's globals, in the order of execution. own: names of the function around."""
    if isinstance(node, ast.Name) and node.id not in own:
        yield node.id, isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, False
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (((alias.asname or alias.name).partition(".")[0], True) for alias in node.names)
    if isinstance(node, COMPREHENSIONS):
        yield from _names(node.generators[0].iter, own)
        own = own | {
            n.id
            for part in node.generators
            for n in ast.walk(part.target)
            if isinstance(n, ast.Name)
        }
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, True
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        shared = {name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names}
        inside = {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        own = own | {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)} | inside - shared
    if isinstance(node, ast.For):
        yield from _names(node.iter, own)  # before its target
    late = isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.withitem))
    for part in sorted(ast.iter_fields(node), key=lambda field: late and field[0] in LATE):
        for child in part[1] if isinstance(part[1], list) else [part[1]]:
            if isinstance(child, ast.AST):
                yield from _names(child, own)


def values(source, names, fetched):
    """What a check reads of the student's values, as bytes: it is part of what its verdict follows from."""
    parts = []
    for name in sorted(_globals(source)[0] & fetched):
        if name in names:
            header, buffers = Table().pack(names[name])
            parts.append((name, repr(header), *map(bytes, buffers)))
    return tuple(parts)
