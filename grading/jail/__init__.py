"""The sandbox that students' code runs in. This is security code; read it in this order.

limits       how much a worker gets: memory, processes, files, disk
visible      what it sees of this machine: files, devices, environment variables
users        the user that it runs as, so that limits on a user hold for it alone
sandbox      what every sandbox has, as the grader sees it, and NoJail for running without one
confinement  the same as the fork server sees it: it sets limits, forks workers and ends them
bubblewrap   one sandbox: namespaces, in which the rest of the machine does not exist
landlock     the other: the kernel refuses files that still exist; for containers
choice       the best sandbox that works on this machine, or why there is none
trial        a sandbox is tried once before it is chosen
escape       what a worker tries in grading.proof, before each class: the sandbox must stop it

Each layer stops what the one before it cannot:

- Namespaces, or Landlock, hide files: solutions, other submissions, results, keys.
- seccomp refuses system calls: the network, other processes, and ways around the first layer.
- Resource limits (limits) stop one process that takes too much memory, or forks without end.
- usage and processes count what a worker and its children take together, and end all of them.
- A control group (cgroups) bounds all workers together, where this user may make one.

syscalls holds the calls to the kernel that Python lacks.
"""
