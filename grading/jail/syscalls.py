"""System calls of Linux that Python's os lacks: namespaces, mounts, capabilities, Landlock, seccomp."""

import ctypes
import os
import platform
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP = 1, 4, 8, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
CLONE_NEW_ANY = 0x7E020000  # a mount, cgroup, uts, ipc, user, pid or net namespace
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 8, 0x4000, 0x40000, 2
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN = 1, 2, 21

# As the kernel's tables have them: (x86-64, arm64); None where there is no such call. From 424 on all machines agree.
NUMBERS = {
    "accept": (43, 202), "accept4": (288, 242), "capset": (126, 91), "chmod": (90, None), "chown": (92, None),
    "clone": (56, 220), "connect": (42, 203), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchown": (93, 55), "fchownat": (260, 54), "fcntl": (72, 25), "fremovexattr": (199, 16),
    "fsetxattr": (190, 7), "futimesat": (261, None), "ioctl": (16, 29), "ioprio_set": (251, 30), "kcmp": (312, 272),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kill": (62, 129), "lchown": (94, None),
    "lremovexattr": (198, 15), "lsetxattr": (189, 6), "memfd_create": (319, 279), "mount": (165, 40),
    "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264), "open": (2, None),
    "open_by_handle_at": (304, 265), "openat": (257, 56), "perf_event_open": (298, 241), "bpf": (321, 280),
    "prlimit64": (302, 261), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "removexattr": (197, 14), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "semget": (64, 190), "setns": (308, 268), "setpriority": (141, 140),
    "setxattr": (188, 5), "shmget": (29, 194), "socket": (41, 198),
    "socketpair": (53, 199), "tgkill": (234, 131), "tkill": (200, 130),
    "truncate": (76, 45), "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "utime": (132, None),
    "utimensat": (280, 88), "utimes": (235, None),
    "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "clone3": (435, 435), "openat2": (437, 437), "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440), "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446), "memfd_secret": (447, 447),
    "fchmodat2": (452, 452), "setxattrat": (463, 463), "removexattrat": (466, 466),
}  # fmt: skip
MACHINES = {
    "x86_64": (0, 0xC000003E),
    "aarch64": (1, 0xC00000B7),
}  # a column of NUMBERS, AUDIT_ARCH


def known_machine():
    """Whether NUMBERS has this machine's calls."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def call(function, *arguments):
    """A function of libc; OSError where it returns -1."""
    if (result := getattr(libc, function)(*arguments)) == -1:
        raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")
    return result


def syscall(name, *arguments):
    """A system call by its name in NUMBERS; OSError where it returns -1."""
    number = NUMBERS[name][MACHINES[platform.machine()][0]]
    return call(
        "syscall", number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    )


def prctl(option, *arguments):
    """Sets an attribute of this process."""
    return call(
        "prctl",
        option,
        *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0)[:4]),
    )


def mount(source, target, kind=None, flags=0, data=None):
    """Mounts; texts are encoded."""
    texts = [text and text.encode() for text in (source, target, kind, data)]
    return call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


# Capabilities


def keep_capabilities(*kept, children=False) -> None:
    """Drops all capabilities but these; children: what this process executes has them, too."""
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("=Ii", 0x20080522, 0)  # version 3, this process
    low, high = mask & 0xFFFFFFFF, mask >> 32
    syscall("capset", header, struct.pack("=6I", low, low, low, high, high, high))
    if children:
        for capability in kept:
            prctl(PR_CAP_AMBIENT, 2, capability)  # 2: raise


def become(uid, *kept, children=False) -> None:
    """From root: becomes this user and group for good, with these capabilities alone."""
    os.setgroups([])
    prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    keep_capabilities(*kept, children=children)
    prctl(PR_SET_DUMPABLE, 1)  # /proc/self stays this user's


# Landlock: what of the file system may be used

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
IOCTL_DEV = 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | IOCTL_DEV  # 1 << 14: truncate
READ = EXECUTE | READ_FILE | READ_DIR
RIGHTS_BY_VERSION = {
    1: 1 << 13,
    2: 1 << 14,
    3: 1 << 15,
    4: 1 << 15,
    5: 1 << 16,
}  # one more than the highest right


def landlock_version():
    """The kernel's version of Landlock; 0 where there is none."""
    try:
        return syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def landlock(readable, writable, devices) -> None:
    """Takes from this process, and its children, for good, all of the file system but these paths.

    readable: files and folders to read and execute. writable: folders to do anything in. devices: files to read, write and
    control. Where the kernel can, no signal and no abstract socket leaves this process and its children.
    """
    version = landlock_version()
    rights = RIGHTS_BY_VERSION[min(version, max(RIGHTS_BY_VERSION))] - 1
    attributes = struct.pack("=QQQ", rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscall("landlock_create_ruleset", attributes, size, 0)
    everything = rights & ~IOCTL_DEV
    device = READ_FILE | WRITE_FILE | IOCTL_DEV
    for paths, allowed in ((readable, READ), (writable, everything), (devices, device)):
        for path in paths:
            try:
                file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # not every machine has every path
                continue
            allowed_here = allowed & rights & (~0 if os.path.isdir(path) else ON_FILES)
            syscall("landlock_add_rule", ruleset, 1, struct.pack("=Qi", allowed_here, file), 0)
            os.close(file)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


# seccomp: which system calls may be made

EPERM, ENOSYS = 1, 38
LOAD, EQUAL, ANY_BIT, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
KILL, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


def instruction(code, operand, then=0, otherwise=0):
    """One instruction of a classic BPF program."""
    return struct.pack("=HBBI", code, then, otherwise, operand)


def filter_rule(name, error=EPERM, argument=None, unless=(), equal=(), bits=None):
    """The instructions that refuse one system call with this error; none where this machine has no such call.

    argument: which one to look at, its low 32 bits. It is refused unless the argument is one of `unless`; or if it is one of
    `equal`; or if under the mask bits[0] it equals bits[1], or has any of these where bits[1] is None.
    """
    number = NUMBERS[name][MACHINES[platform.machine()][0]]
    if number is None:
        return b""
    refuse, load_number = instruction(RETURN, ERROR | error), instruction(LOAD, 0)
    if argument is None:
        body = refuse
    else:
        load = instruction(LOAD, 16 + 8 * argument)
        if bits and bits[1] is None:
            body = load + instruction(ANY_BIT, bits[0], 0, 1) + refuse + load_number
        elif bits:
            body = (
                load
                + instruction(AND, bits[0])
                + instruction(EQUAL, bits[1], 0, 1)
                + refuse
                + load_number
            )
        elif unless:
            tests = [
                instruction(EQUAL, value & 0xFFFFFFFF, len(unless) - i, 0)
                for i, value in enumerate(unless)
            ]
            body = load + b"".join(tests) + refuse + load_number
        else:
            tests = [
                instruction(EQUAL, value & 0xFFFFFFFF, len(equal) - 1 - i, int(i == len(equal) - 1))
                for i, value in enumerate(equal)
            ]
            body = load + b"".join(tests) + refuse + load_number
    return instruction(EQUAL, number, 0, len(body) // 8) + body


def seccomp(rules) -> None:
    """Refuses these system calls (filter_rule) to this process and its children, for good, and those of foreign machines."""
    _, machine = MACHINES[platform.machine()]
    program = (
        instruction(LOAD, 4)
        + instruction(EQUAL, machine, 1, 0)
        + instruction(RETURN, KILL)
        + instruction(LOAD, 0)
    )
    if platform.machine() == "x86_64":  # the calls of the x32 interface
        program += instruction(AT_LEAST, 0x40000000, 0, 1) + instruction(RETURN, ERROR | ENOSYS)
    program += b"".join(rules) + instruction(RETURN, ALLOW)
    buffer = ctypes.create_string_buffer(program, len(program))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer)))
