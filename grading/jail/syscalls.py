"""System calls of Linux that Python's os lacks: for namespaces, mounts, capabilities and more."""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP = 1, 4, 8, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 36, 38, 47, 2
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
CLONE_NEWUSER = 0x10000000
CLONE_NEW_ANY = 0x7E020000  # a mount, cgroup, uts, ipc, user, pid or net namespace
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN = 1, 2, 21

# From the kernel's tables: (x86-64, arm64); None if there is no such call. From 424 on, they agree.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202), "accept4": (288, 242), "capset": (126, 91), "chmod": (90, None),
    "chown": (92, None), "clone": (56, 220), "connect": (42, 203), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchown": (93, 55), "fchownat": (260, 54), "fcntl": (72, 25),
    "fremovexattr": (199, 16), "fsetxattr": (190, 7), "futimesat": (261, None), "ioctl": (16, 29),
    "ioprio_set": (251, 30), "kcmp": (312, 272), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kill": (62, 129), "lchown": (94, None), "lremovexattr": (198, 15),
    "lsetxattr": (189, 6), "memfd_create": (319, 279), "mount": (165, 40), "mq_open": (240, 180),
    "msgget": (68, 186), "name_to_handle_at": (303, 264), "open": (2, None),
    "open_by_handle_at": (304, 265), "openat": (257, 56), "perf_event_open": (298, 241),
    "bpf": (321, 280), "prlimit64": (302, 261), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "removexattr": (197, 14),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "semget": (64, 190), "setns": (308, 268), "setpriority": (141, 140), "setxattr": (188, 5),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "tgkill": (234, 131),
    "tkill": (200, 130), "truncate": (76, 45), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "utime": (132, None), "utimensat": (280, 88), "utimes": (235, None),
    "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "clone3": (435, 435), "openat2": (437, 437),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "memfd_secret": (447, 447), "fchmodat2": (452, 452),
    "setxattrat": (463, 463), "removexattrat": (466, 466),
    "flock": (73, 32), "futex": (202, 98), "futex_waitv": (449, 449), "futex_wake": (454, 454),
    "futex_wait": (455, 455), "futex_requeue": (456, 456), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "mincore": (27, 232), "cachestat": (451, 451),
    "preadv2": (327, 286), "getpgid": (121, 155), "getsid": (124, 156),
    "getpriority": (140, 141), "ioprio_get": (252, 31), "sched_getaffinity": (204, 123),
    "sched_getattr": (315, 275), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "get_robust_list": (274, 100), "io_setup": (206, 0), "sched_rr_get_interval": (148, 127),
    "pidfd_open": (434, 434), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "statfs": (137, 43), "fstatfs": (138, 44), "ustat": (136, None), "fadvise64": (221, 223),
    "readahead": (187, 213), "mlock": (149, 228), "mlock2": (325, 284), "mlockall": (151, 230),
    "sync": (162, 81), "syncfs": (306, 267), "sync_file_range": (277, 84), "madvise": (28, 233),
    "mmap": (9, 222),
}  # fmt: skip


class Machine(NamedTuple):
    column: int  # of NUMBERS
    audit_number: int  # by which seccomp names it


MACHINES = {"x86_64": Machine(0, 0xC000003E), "aarch64": Machine(1, 0xC00000B7)}


def known_machine() -> bool:
    """Whether NUMBERS has this machine's calls."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def machine() -> Machine:
    return MACHINES[platform.machine()]


def number(name: str) -> int | None:
    """A system call's number on this machine; None if it has no such call."""
    return NUMBERS[name][machine().column]


def call(function: str, *arguments: object) -> int:
    """Calls a function of libc. OSError if it fails."""
    if (result := getattr(libc, function)(*arguments)) == -1:
        raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")
    return result


def syscall(name: str, *arguments: int | bytes | None) -> int:
    """Makes a system call by its name in NUMBERS. OSError if it fails."""
    longs = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    return call("syscall", number(name), *longs)


def prctl(option: int, *arguments: int | bytes) -> int:
    """Sets an attribute of this process."""
    four = (*arguments, 0, 0, 0)[:4]
    return call("prctl", option, *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in four))


def make_read_only(folder: str) -> None:
    """Makes all mounts below a folder read-only, in this process's namespace. From Linux 5.12."""
    attributes = struct.pack("=4Q", MOUNT_ATTR_RDONLY, 0, 0, 0)
    path = os.fsencode(folder) + b"\0"
    syscall("mount_setattr", AT_FDCWD, path, AT_RECURSIVE, attributes, len(attributes))


def mount(
    source: str | None,
    target: str,
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    texts = [text and text.encode() for text in (source, target, kind, data)]
    call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def keep_capabilities(kept: Iterable[int], children: bool = False) -> None:
    """Drops all of root's rights but these; children: what this process executes has them, too."""
    kept = tuple(kept)
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)  # 0: this process
    low, high = mask & 0xFFFFFFFF, mask >> 32
    syscall("capset", header, struct.pack("=6I", low, low, low, high, high, high))
    if children:
        for capability in kept:
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def count_alone() -> None:
    """Puts this process into a user namespace of its own, as the same user.

    From Linux 5.14 on, the kernel counts a user's threads and queued signals by namespace: others
    neither see nor share the count.
    """
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def become(uid: int, kept: Iterable[int], children: bool = False) -> None:
    """Turns from root into this user and group for good, with these capabilities alone."""
    os.setgroups([])
    prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    keep_capabilities(kept, children)
    prctl(PR_SET_DUMPABLE, 1)  # /proc/self stays this user's
