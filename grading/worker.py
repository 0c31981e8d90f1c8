"""The process that holds the student's work, and the warm one that it is forked from.

python -m grading.worker FD [MODULE ...]    the warm process, which imports modules and, on a control socket, is told to
                                            fork workers and to end them

A worker executes cells in one namespace and calls what they define, as it is told over its wire. It knows no check, no
expected value and no solution. It is forked, not started, since importing torch takes over a second and a fork 10 ms.
"""

import builtins
import ctypes
import importlib.util
import linecache
import os
import resource
import signal
import socket
import sys
import traceback

from common import device
from grading.wire import Table, Wire, WireClosed

WARM = "numpy torch numba triton matplotlib.pyplot ipywidgets common.checks common.simt"
MEMORY_BYTES = 4 << 30  # beyond what the warm process has mapped
FILE_BYTES = 64 << 20
KILL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    warm_up(sys.argv[2:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the grader's to handle
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 32, 1)
        if not request:  # the grader is gone, and with it the workers (PDEATHSIG)
            return
        verb, *number = request.decode().split()
        if verb == "fork":
            control.sendall(f"{fork(descriptors[0], control)}\n".encode())
        else:
            control.sendall(f"{end(int(number[0]))}\n".encode())


def warm_up(also):
    """Imports what labs import, without running any of it: a process with threads can't be forked."""
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # to look for a GPU without starting CUDA, which no fork survives
    device.prepare_triton()
    for name in [*WARM.split(), *also]:
        if name != "triton" or importlib.util.find_spec(name):  # there is none but for Linux
            importlib.import_module(name)


def fork(descriptor, control):
    """A new worker that serves the socket of this descriptor; returns its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    try:
        ctypes.CDLL(None).prctl(KILL_ON_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        control.close()
        shut_in()
        Worker(Wire(socket.socket(fileno=descriptor))).serve()
    finally:
        os._exit(0)


def end(pid):
    """Kills a worker and its process group; returns how it had ended: an exit code, or minus a signal."""
    done, status = os.waitpid(pid, os.WNOHANG)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    if not done:
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def shut_in():
    """A session of its own, no terminal, nothing to read or to flood, limits on memory and on the size of files."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    mapped = (
        int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        if os.path.exists("/proc/self/statm")
        else 0
    )
    for what, limit in (
        (resource.RLIMIT_AS, mapped + MEMORY_BYTES if mapped else None),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
    ):
        if limit is not None:
            resource.setrlimit(what, (limit, limit))


class Worker:
    """One namespace, and the requests that come in for it."""

    def __init__(self, wire):
        self.wire = wire
        self.namespace = {"__name__": "__main__", "__ask__": self.ask}

    def serve(self):
        """Answers until the grader closes the wire."""
        while True:
            try:
                kind, frame = self.wire.receive()
            except WireClosed:
                return
            table = Table()
            request = table.unpack(*frame)
            try:
                if kind not in ("execute", "call", "fetch", "apart"):
                    raise ValueError(f"no request {kind!r}")
                reply = "value", table.pack(getattr(self, kind)(*request))
            except BaseException as error:  # whatever it is, SystemExit too, it is the student's
                reply = "error", table.pack(description(error))
            self.wire.send(*reply)

    def execute(self, source, name):
        """Executes a cell. name stands in tracebacks; linecache holds the text, which Triton and inspect read."""
        filename = f"<{name}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.namespace)  # noqa: S102

    def call(self, name, args, kwargs):
        """Calls what a cell defined."""
        return self.namespace[name](*args, **kwargs)

    def fetch(self, name):
        """What a cell assigned."""
        return self.namespace[name]

    def apart(self, machine, text, name, constants, args, options):
        """The report, as data, of a kernel in common.simt or common.tiles; nothing of its text is run as Python."""
        simulator = importlib.import_module(f"common.{machine}")
        return simulator.count(simulator.compile_source(text, name, constants), *args, **options).as_dict()

    def ask(self, what, *args):
        """Asks the grader something in the middle of a call (a rank's messages go this way) and returns its answer."""
        self.wire.send("ask", Table().pack((what, args)))
        kind, frame = self.wire.receive()
        answer = Table().unpack(*frame)
        if kind == "error":
            raise getattr(builtins, answer["type"])(answer["text"])
        return answer


def description(error):
    """An exception as data: its nearest builtin, its text, and the line of the student's cell that it came from."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
    try:
        text = str(error)[:2000]
    except Exception:  # an exception can be the student's own class
        text = ""
    line = code = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<") and frame.line:
            line, code = frame.lineno, frame.line[:200]
    return {"type": kind, "text": text, "line": line, "code": code}


if __name__ == "__main__":
    main()
