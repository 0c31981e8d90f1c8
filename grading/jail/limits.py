"""How much a worker may take. Beyond a limit it gets an error, or is ended."""

import os

MEMORY_BYTES = 4 << 30  # of a worker and its children, beyond what the fork server has mapped
PROCESSES = 64 + (os.cpu_count() or 1)  # threads included: Numba starts one per core
OPEN_FILES = 256
FILE_BYTES = 64 << 20  # of one file
SCRATCH_BYTES = 256 << 20  # of all files of a worker
SCRATCH_FILES = 10_000
WATCH_S = 0.1  # between two looks at what the workers take

# Of the fork server and all its workers together. A check of ranks has several workers.
GROUP_BYTES = 3 * MEMORY_BYTES
GROUP_PROCESSES = 1024
