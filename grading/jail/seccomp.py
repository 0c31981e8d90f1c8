"""seccomp: the system calls that a worker may not make. The kernel asks this filter before each.

A rule is a piece of a classic BPF program: it looks at one system call, and either refuses it or
leaves it to the next rule. A call that no rule refuses is allowed.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Sequence

from grading.jail import syscalls

EPERM, EAGAIN, EINVAL, ENOSYS = 1, 11, 22, 38
LOAD, EQUAL, ANY_BIT, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
KILL, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16  # what the filter sees of a call
X32 = 0x40000000  # numbers from here on belong to x86-64's second set of calls

REFUSED = (
    # To reach another program: by network, Unix socket, shared memory or message queue.
    "socket", "shmget", "semget", "msgget", "mq_open",
    # io_uring has the kernel open and connect without asking this filter.
    "io_uring_setup",
    # To read or change another process: a checked answer, or a neighbour's.
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    # Memory that counts neither as a process's own nor as a file in a folder.
    "memfd_create", "memfd_secret",
    # The kernel's keyrings outlive a worker: it could leave a message to the next one.
    "add_key", "request_key", "keyctl",
    # Large, often broken parts of the kernel that no lab needs.
    "bpf", "perf_event_open", "userfaultfd",
    # To leave the namespaces, or to mount what was left out.
    "unshare", "setns", "mount", "umount2", "open_tree", "move_mount", "fsopen", "mount_setattr",
    # To leave a message for another worker on a file that both may only read: locks, watches, and
    # which of its pages are in memory. No library of the labs locks files.
    "flock", "inotify_init", "inotify_init1", "inotify_add_watch", "fanotify_init",
    "fanotify_mark", "mincore", "cachestat",
    # To empty or fill the memory that holds a file's pages: what is in it would be a message, too.
    "fadvise64", "readahead", "sync", "syncfs", "sync_file_range",
    # The kernel counts these for the whole machine, exactly, and shows the count to all.
    "io_setup", "mlock", "mlock2", "mlockall",
    # To open a file by its number on the disk, past all rules on paths.
    "open_by_handle_at", "name_to_handle_at",
)  # fmt: skip

# fcntl's commands on the descriptor itself. The others set or show what all who have opened the
# file share: record locks, leases, notifications, hints (F_SET_RW_HINT), or the size of a pipe, of
# which all processes of a user together may have so much.
F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL = 0, 1, 2, 3, 4
F_DUPFD_CLOEXEC = 1030
OWN_COMMANDS = [F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC]

# A futex without this bit is known by its place in a file, so two workers that map the same library
# could wait for each other. Only the end of a thread needs one, and asks again after EAGAIN.
FUTEX_PRIVATE, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_CLOCK_REALTIME = 128, 0, 9, 256
SHARED_WAITS = [FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME]

# Landlock watches how files are opened. It does not see these calls on files of the same user.
UNSEEN_BY_LANDLOCK = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
    "truncate", "utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr",
    "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
    # Nor these on processes of the same user: a signal, a lower priority.
    "pidfd_send_signal", "setpriority", "ioprio_set",
    # Workers share a disk here. How much of it is free would tell exactly what another one wrote.
    "statfs", "fstatfs", "ustat",
)  # fmt: skip
# Allowed on the worker itself, by its process id: Python and PyTorch need them. Refused on others:
# to kill or stop the grader or another student's worker, or to slow them down.
ON_ITSELF_ONLY = (
    "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
    # What another worker has set for itself would be a message.
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
    "get_robust_list", "getpgid", "getsid", "sched_rr_get_interval", "pidfd_open",
    "move_pages", "migrate_pages",
)  # fmt: skip

# Advice on pages that moves them between memory and disk, for files and for what was counted.
MADV_WILLNEED, MADV_REMOVE, MADV_COLD, MADV_PAGEOUT = 3, 9, 20, 21
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23
MOVES_PAGES = [
    MADV_WILLNEED, MADV_REMOVE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
]  # fmt: skip
SHARED_WITHOUT_FILE = 0x01 | 0x20  # mmap's MAP_SHARED and MAP_ANONYMOUS

# CUDA's driver must do this when it starts, or it fails: map files without a name, and listen on a
# socket for processes that share its memory. With a GPU a worker may do so, but it can neither
# connect to anyone nor accept a connection.
NEEDED_BY_CUDA = ("memfd_create", "socket")
AF_UNIX, SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_KIND = 1, 1, 2, 3, 5, 0xF
SOCK_NONBLOCK, SOCK_CLOEXEC = 1 << 11, 1 << 19
CUDA_SOCKETS = [
    kind | flags
    for kind in (SOCK_STREAM, SOCK_SEQPACKET)
    for flags in (0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC)
]

# Commands that name a process to which the kernel sends a signal when there is input.
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902
PRIO_PGRP, PRIO_USER = 1, 2


def worker_rules(has_gpu: bool) -> list[bytes]:
    """The rules of a worker in either sandbox."""
    rules = [refuse(name) for name in REFUSED if not (has_gpu and name in NEEDED_BY_CUDA)]
    # Datagram sockets of a pair can send to any address, also to another program's.
    rules += [refuse_if_bits("socketpair", 1, SOCK_KIND, kind) for kind in (SOCK_DGRAM, SOCK_RAW)]
    if has_gpu:
        rules += [refuse_unless("socket", 0, [AF_UNIX]), refuse_unless("socket", 1, CUDA_SOCKETS)]
        rules += [refuse(name) for name in ("connect", "accept", "accept4")]
    # No new namespaces: in one of its own, a worker would have the rights of root again. This
    # filter can't read clone3's flags, which lie in memory; "not there" makes libc use clone.
    rules.append(refuse_unless("fcntl", 1, OWN_COMMANDS))
    rules.append(refuse("preadv2", ENOSYS))  # it tells which pages are in memory; preadv does not
    rules.append(refuse_if("madvise", 2, MOVES_PAGES, EINVAL))
    if not has_gpu:
        # Shared memory without a file stays when it is advised away, and then is in no count.
        rules.append(refuse_if_bits("mmap", 3, SHARED_WITHOUT_FILE, SHARED_WITHOUT_FILE))
        rules.append(refuse_if("futex", 1, SHARED_WAITS, EAGAIN))
        rules.append(refuse_unless_bit("futex", 1, FUTEX_PRIVATE, EINVAL))
    rules += [refuse(f"futex_{name}", ENOSYS) for name in ("waitv", "wait", "wake", "requeue")]
    rules += [refuse("clone3", ENOSYS), refuse_if_any_bit("clone", 0, syscalls.CLONE_NEW_ANY)]
    return rules


def rules_without_namespaces(pid: int) -> list[bytes]:
    """More rules for a worker, pid, that shares files and processes with the user outside."""
    rules = [refuse(name) for name in UNSEEN_BY_LANDLOCK]
    rules += [refuse_unless(name, 0, [pid, 0]) for name in ON_ITSELF_ONLY]
    # To open a file for reading and empty it: Landlock sees that from version 3 on.
    empties = (os.O_TRUNC | os.O_ACCMODE, os.O_TRUNC)
    rules += [refuse_if_bits("open", 1, *empties), refuse_if_bits("openat", 2, *empties)]
    rules.append(refuse("openat2", ENOSYS))  # its flags lie in memory, as clone3's do
    # To have the kernel send a signal in the worker's place.
    rules.append(refuse_if("ioctl", 1, [FIOSETOWN, SIOCSPGRP]))
    for name in ("getpriority", "ioprio_get"):
        rules += [refuse_unless(name, 1, [pid, 0]), refuse_if(name, 0, [PRIO_PGRP, PRIO_USER])]
    return rules


# Rules. An argument is looked at by its low 32 bits.


def refuse(name: str, error: int = EPERM) -> bytes:
    """Refuses a system call: it fails with this error."""
    return _rule(name, b"", error)


def refuse_unless(name: str, argument: int, values: Sequence[int]) -> bytes:
    """Refuses it unless this argument is one of the values."""
    # A jump counts the instructions to skip: the tests that are left, and the refusal.
    last = len(values)
    tests = [_instruction(EQUAL, value & 0xFFFFFFFF, last - i, 0) for i, value in enumerate(values)]
    return _rule(name, _load(argument) + b"".join(tests))


def refuse_if(name: str, argument: int, values: Sequence[int], error: int = EPERM) -> bytes:
    """Refuses it if this argument is one of the values."""
    last = len(values) - 1
    tests = [_instruction(EQUAL, value, last - i, int(i == last)) for i, value in enumerate(values)]
    return _rule(name, _load(argument) + b"".join(tests), error)


def refuse_if_bits(name: str, argument: int, mask: int, bits: int) -> bytes:
    """Refuses it if this argument has exactly these bits of the mask."""
    return _rule(name, _load(argument) + _instruction(AND, mask) + _instruction(EQUAL, bits, 0, 1))


def refuse_if_any_bit(name: str, argument: int, mask: int) -> bytes:
    """Refuses it if this argument has any bit of the mask."""
    return _rule(name, _load(argument) + _instruction(ANY_BIT, mask, 0, 1))


def refuse_unless_bit(name: str, argument: int, bit: int, error: int = EPERM) -> bytes:
    """Refuses it unless this argument has the bit."""
    return _rule(name, _load(argument) + _instruction(ANY_BIT, bit, 1, 0), error)


def _rule(name: str, tests: bytes, error: int = EPERM) -> bytes:
    """Tests skip the refusal, or let it happen. Empty on a machine without this system call."""
    number = syscalls.number(name)
    if number is None:
        return b""
    body = tests + _instruction(RETURN, ERROR | error)
    if tests:
        body += _instruction(LOAD, NUMBER_AT)  # for the next rule
    return _instruction(EQUAL, number, 0, len(body) // 8) + body


def _load(argument: int) -> bytes:
    return _instruction(LOAD, ARGUMENTS_AT + 8 * argument)


def _instruction(code: int, operand: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; then and otherwise: how many to skip after a test."""
    return struct.pack("=HBBI", code, then, otherwise, operand)


def install(rules: Iterable[bytes]) -> None:
    """Holds this process and its children to these rules, for good."""
    # The same number means another call on another machine (32-bit x86): end whoever tries.
    program = _instruction(LOAD, MACHINE_AT)
    program += _instruction(EQUAL, syscalls.machine().audit_number, 1, 0)
    program += _instruction(RETURN, KILL) + _instruction(LOAD, NUMBER_AT)
    if platform.machine() == "x86_64":  # each call has a second number there
        program += _instruction(AT_LEAST, X32, 0, 1) + _instruction(RETURN, ERROR | ENOSYS)
    program += b"".join(rules) + _instruction(RETURN, ALLOW)
    buffer = ctypes.create_string_buffer(program, len(program))
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)  # no set-user-ID program lifts the filter
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, 2, header)
