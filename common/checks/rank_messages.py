"""What messages between ranks a check allows and asks for, whatever they carry."""

from nogpu import ranks
from nogpu.ranks import operations

COLLECTIVES = [name for names in operations.COLLECTIVES.values() for name in names] + ["new_group"]


def sums_fault(trace: ranks.Trace, numbers: int) -> str:
    """What is wrong with the bytes of a sum of so many float64 over ranks; "" if nothing.

    Each rank but one must give its numbers away, and each rank but one must get the sum.
    """
    least = 2 * (trace.world_size - 1) * 8 * numbers
    if trace.bytes >= least:
        return ""
    return (
        f"{trace.world_size} ranks send {trace.bytes:,} bytes, and a sum of {numbers} numbers that "
        f"all ranks learn takes {least:,}: what ranks know of each other comes in messages."
    )
