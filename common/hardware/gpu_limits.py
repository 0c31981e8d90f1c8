"""What a GPU has room for, by compute capability, and which features it has."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Limits of a block of threads, and what else differs between GPUs."""

    cards: str
    shared_bytes: int  # of a block, where a kernel asks for more than 48 KB
    bf16: bool  # tensor cores multiply it
    copy_engine: bool  # fetches tiles by descriptors (TMA)
    threads: int = 1024
    registers: int = 65_536  # of a block
    registers_per_thread: int = 255


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the maximum amount
# of shared memory per thread block, registers per thread block and per thread, threads per block.
LIMITS = {
    75: Limits("T4, RTX 20", 64 << 10, bf16=False, copy_engine=False),
    80: Limits("A100", 163 << 10, bf16=True, copy_engine=False),
    86: Limits("A10, RTX 30", 99 << 10, bf16=True, copy_engine=False),
    89: Limits("L4, L40S, RTX 40", 99 << 10, bf16=True, copy_engine=False),
    90: Limits("H100, H200", 227 << 10, bf16=True, copy_engine=True),
    100: Limits("B200", 227 << 10, bf16=True, copy_engine=True),
    120: Limits("RTX 50", 99 << 10, bf16=True, copy_engine=True),
}
