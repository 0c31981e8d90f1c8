"""The sandbox on a machine with a GPU: CUDA, Triton and Numba work inside, and it still holds.

If a step fails, the message says what it takes to fix it: which part of the sandbox is to blame,
and which system calls and files were refused.

A machine without bubblewrap can use another's bwrap, on PATH (it needs libselinux, libpcre2 and
libcap). All users must be able to read what lies on PYTHONPATH.
"""

import contextlib
import functools
import glob
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import pytest

from grading import proof
from grading.jail import choice, landlock, visible
from grading.jail.sandbox import NoJail
from grading.worker.allowance import Allowance
from grading.worker.client import WorkerClient
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import WARM, ForkServer

LIMIT_S = 120
STEPS = {
    "the driver starts": """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert (code := cuda.cuInit(0)) == 0, f"cuInit gave {code}"
code = cuda.cuDeviceGetCount(ctypes.byref(count))
assert code == 0 and count.value, f"cuDeviceGetCount gave {code}, {count.value} GPUs"
""",
    "PyTorch allocates and multiplies": """
import torch
assert torch.cuda.is_available()
x = torch.randn(512, 512, device="cuda")
torch.testing.assert_close((x @ x).cpu(), x.cpu() @ x.cpu(), rtol=1e-2, atol=1e-1)
more_than_a_worker_has = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
assert more_than_a_worker_has.fill_(1)[-1].item() == 1
assert torch.empty(1 << 20, pin_memory=True).to("cuda", non_blocking=True).sum().isfinite()
loss = torch.nn.Linear(512, 8, device="cuda")(x).square().mean()
loss.backward()
""",
    "a Triton kernel runs, interpreted, on what the GPU holds": """
import torch, triton
import triton.language as tl
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
x = torch.arange(1000.0, device="cuda")
out = torch.empty_like(x)
doubled[(8,)](x, out, 1000, BLOCK=128)
assert torch.equal(out, 2 * x)
""",
    "a Numba kernel compiles and runs": """
import numpy as np
from numba import cuda
@cuda.jit
def doubled(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 2 * x[i]
x = np.arange(1000.0)
out = np.zeros_like(x)
doubled[8, 128](x, out)
assert np.array_equal(out, 2 * x)
""",
}
STEP = """
import os, traceback
def f():
    problem = ""
    try:
        exec(compile(TEXT, FILE, "exec"), {{"__name__": "__main__"}})
    except BaseException as error:
        problem = f"errno {{getattr(error, 'errno', None)}}; " + traceback.format_exc()[-4000:]
    return problem, open("refused").read() if os.path.exists("refused") else ""
TEXT, FILE = {text!r}, "<step>"
from nogpu.kernels import linecache_text as sources
sources.remember(FILE, TEXT)
"""
LOOSER = {  # what the fork server does before anything else
    "no system call is refused": "seccomp.install = lambda rules: None",
    "every file may be used": "landlock.restrict = lambda *paths: None",
    "nothing has a limit": "import resource; resource.setrlimit = lambda *limit: None",
}
# A process outside the filter answers for the kernel. It writes what it refuses into a file: system
# calls, and files to open.
WATCHED = """
import ctypes, fcntl, os, socket, struct
prctl, names = syscalls.prctl, {syscalls.number(name): name for name in syscalls.NUMBERS}
RECEIVE, SEND, GO_ON = 0xC0502100, 0xC0182101, 1

def answer(listener, worker):
    seen = set()
    while True:
        asked = bytearray(80)
        fcntl.ioctl(listener, RECEIVE, asked)
        key, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", asked)
        name, error, flags = names[number], -1, 0
        call = f"{name}({', '.join(hex(argument) for argument in arguments[:4])})"
        if name == "openat":
            path, error, flags = text_at(pid, arguments[1]), 0, GO_ON
            call = refusal(path.replace("/proc/self", f"/proc/{worker}"), arguments[2])
        elif name in ("clone3", "openat2"):
            call, error = None, -38
        if call and call not in seen:
            seen.add(call)
            with open("refused", "a") as file:
                file.write(call + "\\n")
        try:
            fcntl.ioctl(listener, SEND, struct.pack("=QqiI", key, 0, error, flags))
        except OSError:
            pass  # it has ended

def text_at(pid, address):
    found = b""
    while b"\\0" not in found and len(found) < 4096:
        buffer = ctypes.create_string_buffer(64 - (address + len(found)) % 64)
        local = struct.pack("=QQ", ctypes.addressof(buffer), len(buffer))
        remote = struct.pack("=QQ", address + len(found), len(buffer))
        syscalls.syscall("process_vm_readv", pid, local, 1, remote, 1, 0)
        found += buffer.raw
    return found.split(b"\\0")[0].decode(errors="replace")

def refusal(path, flags):
    if not path.startswith("/"):
        return None
    try:
        kept = os.O_ACCMODE | os.O_TRUNC * path.startswith("/proc")
        os.close(os.open(path, flags & kept | os.O_NONBLOCK))
    except OSError as problem:
        hidden = os.path.dirname(path) in ("/dev", "/dev/shm", "/dev/nvidia-caps")
        hidden = hidden or path.startswith(("/proc", "/run", "/var", "/etc"))
        if problem.errno in (1, 13, 30) or hidden:
            purpose = "reading" if flags & os.O_ACCMODE == 0 else "writing"
            return f"open {path} for {purpose}: {problem.strerror}"

def watched(option, *arguments):
    if option != syscalls.PR_SET_SECCOMP:
        return prctl(option, *arguments)
    ours, theirs = socket.socketpair()
    worker = os.getpid()
    if not os.fork():
        answer(socket.recv_fds(theirs, 1, 1)[1][0], worker)
    number = ctypes.c_long({"x86_64": 317, "aarch64": 277}[os.uname().machine])  # seccomp
    listener = syscalls.libc.syscall(number, 1, 8, arguments[1])
    socket.send_fds(ours, [b"x"], [listener])
    os.close(listener)

install, syscalls.prctl = seccomp.install, watched
seccomp.ERROR = 0x7FC00000  # what a rule would refuse, the kernel asks that process about
seccomp.install = lambda rules: install([*rules, seccomp.refuse("openat")])
"""


@pytest.fixture(scope="module", params=("bubblewrap", "landlock"))
def backend(request):
    if not visible.has_gpu():
        pytest.skip("there is no GPU here")
    if problem := choice.JAILS[request.param].problem():
        pytest.skip(f"there is no {request.param} here: {problem}")
    return choice.JAILS[request.param]


@pytest.fixture(scope="module")
def fork_server(backend):
    with contextlib.closing(ForkServer(bare=True)) as free:
        attempt(
            free, "the driver starts"
        )  # the first to call CUDA makes its devices, which takes root
    with warm(backend) as fork_server:
        yield fork_server


def warm(backend):
    """A fork server that has imported what labs import, as far as this machine has it."""
    fork_server = ForkServer(jail=backend)
    fork_server.modules = tuple(filter(imports, WARM))
    return contextlib.closing(fork_server)


@functools.cache
def imports(name):
    return (
        subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode
        == 0
    )


def attempt(fork_server, step):
    """What went wrong with a step in a fresh worker, and, if it was watched, what was refused."""
    try:
        worker = WorkerClient(fork_server)
        worker.request(
            "execute", STEP.format(text=STEPS[step]), "step", allowance=Allowance(LIMIT_S)
        )
        found = worker.request("call", "f", (), (), allowance=Allowance(LIMIT_S))
        worker.end()
        return found
    except (WorkerEnded, RuntimeError) as problem:
        return f"{type(problem).__name__}: {problem}", ""


@contextlib.contextmanager
def altered(backend, text):
    """A fork_server whose processes do this first."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write("import sys\nfrom grading.jail import landlock, seccomp, syscalls\n" + text)
        patch.syspath_prepend(folder)  # so that the jail lets it be read
        patch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        )
        with warm(backend) as fork_server:
            yield fork_server


def diagnosis(backend, step, problem):
    """All that it takes to fix a step that fails, as text."""
    lines = [f"{backend.name}: {step}: {problem}", "", "Would it work otherwise?"]
    with warm(NoJail()) as free:
        lines.append(f"- outside of the jail: {last(attempt(free, step)[0])}")
    for what, text in LOOSER.items():
        with altered(backend, text) as fork_server:
            lines.append(f"- where {what}: {last(attempt(fork_server, step)[0])}")
    with altered(backend, WATCHED) as fork_server:
        problem, refused = attempt(fork_server, step)
    lines += [
        f"- watched: {last(problem)}; refused were, the failure's reason perhaps among them:",
        refused or "(nothing)",
        machine(),
    ]
    return "\n".join(lines)


def last(problem):
    return f"no, {problem.strip().splitlines()[-1]}" if problem else "yes"


def machine():
    """What of this machine matters here, as text."""

    def output(*command):
        try:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=20
            ).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)

    return "\n".join(
        [
            f"Linux {platform.release()}, Landlock {landlock.version()}, user {os.geteuid()}",
            f"Python {sys.version.split()[0]} in {sys.prefix} of {sys.base_prefix}",
            *(f"{name}={os.environ[name]}" for name in visible.ENVIRONMENT if name in os.environ),
            f"readable: {' '.join(visible.readable())}",
            f"compiler: {shutil.which('gcc') or shutil.which('clang')}",
            f"Python.h: {os.path.exists(sysconfig.get_path('include') + '/Python.h')}",
            output("bwrap", "--version"),
            output(
                "ls",
                "-ld",
                *glob.glob("/dev/nvidia*"),
                *glob.glob("/dev/nvidia-caps/*"),
                "/usr/local/nvidia",
                "/usr/local/cuda",
            ),
            output(
                "sh",
                "-c",
                "ldconfig -p | grep -E 'libcuda.so|libnvidia-ml|libnvidia-ptxjit'; "
                "cat /proc/driver/nvidia/version",
            ),
        ]
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_gpu_works_in_the_jail(backend, fork_server, step):
    problem, _ = attempt(fork_server, step)
    assert not problem, diagnosis(backend, step, problem)


def test_a_kernel_is_counted_remotely_though_there_is_a_gpu(fork_server):
    text = """
@triton.jit
def doubled(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i))
"""
    np = pytest.importorskip("numpy")
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    worker = WorkerClient(fork_server)
    worker.request(
        "count",
        "tiles",
        text,
        "doubled",
        [1, x, out],
        {"BLOCK": 64},
        allowance=Allowance(LIMIT_S),
        in_place=[x, out],
    )
    worker.end()
    assert out.sum() == 128


def test_the_jail_is_proved_with_a_gpu(backend, tmp_path):
    (tmp_path / "ada").mkdir()
    proof.prove(backend, [tmp_path])


def test_what_the_driver_is_refused(backend):
    """Printed (pytest -rP): what works without it needs no right to it."""
    with altered(backend, WATCHED) as fork_server:
        for step in STEPS:
            problem, refused = attempt(fork_server, step)
            print(f"--- {backend.name}: {step}\n{refused}{problem}")
            assert refused or not problem, problem
