"""The student's work, in processes of its own, and how the grader talks to them.

**Who sends what to whom.** A `ForkServer` (fork_server) starts the fork server (process), which
imports PyTorch once and forks workers. A worker executes a student's cells and calls what they
define. The grader asks, through a `WorkerClient` (client), and the worker answers: "execute" a
cell, "call" a function, "fetch" a value, "count" a kernel. In the middle of a call a worker may ask
something itself, as a rank does that sends a message. A `Session` holds a student's cells and
replaces a worker that has ended. In a check, a `Remote` stands for each of the student's functions:
calling it sends a "call".

**What never crosses.** Only data crosses, as JSON and raw bytes: no code and no pickles. So a
worker can't make the grader run anything, and it holds nothing of the grader that it could patch.
The checks, expected values, seeds and solutions stay in the grader. What a worker sends may be
anything at all: it is checked against the limits and against its form before it is used. A worker
that breaks them is ended, and so is one that is too slow.

**Why counts are made in another process.** A student's Python can change any module in its own
process, the counters included. So a kernel is counted from its text, in a worker that executes none
of the student's cells; the simulators refuse any text that could do more than compute. For ranks,
each rank is a worker of its own and the grader is the network between them: it carries the messages
and keeps the clocks and the byte counts.

In order of reading: `limits`; `transport` exchanges frames, `storages`, `items` and `packing` turn
values into frames and back, and `wire` sends them; `process` is the worker's end, `fork_server` and
`client` are the grader's; `errors` says what can go wrong there; `session`, then `remote`,
`counting` and `ranks` give checks what they call; `replay` and `repeatable` save the time of checks
that would pass again.
"""
