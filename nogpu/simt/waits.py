"""Where threads wait for each other: barriers, and the exchanges of a warp's lanes; and fences."""

from nogpu.simt import dtypes
from nogpu.simt.calls import Builtins, Call
from nogpu.simt.dtypes import Tuple, Type
from nogpu.simt.operators import exact
from nogpu.simt.program import Kind
from nogpu.simt.values import Nothing, Number, Value, held, integer

builtin = Builtins()

ALL_LANES = 2**32 - 1
SHUFFLED = "int32", "int64", "float32", "float64"


def wait(call: Call, *codes: str) -> str:
    """Code by which the thread stops here, hands over these values and gets an answer."""
    frame = call.frame
    frame.step()
    frame.program.suspends = True
    site = frame.site(call.node, Kind.WAIT, function=call.name)
    values = ", ".join([str(site.number), frame.path, *codes])
    return frame.writer.temporary(f"suspend(({values},))")


@builtin("cuda.syncthreads")
def syncthreads(call: Call) -> Value:
    call.numbers(0)
    wait(call)
    return Nothing()


@builtin("cuda.syncthreads_count", "cuda.syncthreads_and", "cuda.syncthreads_or")
def counting_barrier(call: Call) -> Value:
    (predicate,) = call.numbers(1)
    code = call.whole(predicate, f"the predicate of cuda.{call.name}")
    return integer(wait(call, code), "int32")


@builtin("cuda.threadfence", "cuda.threadfence_block", "cuda.threadfence_system")
def fence(call: Call) -> Value:
    call.numbers(0)
    frame = call.frame
    frame.step()
    frame.program.fences = True
    if frame.program.counting:
        frame.writer.emit(f"fence({call.name != 'threadfence_block'})")
    return Nothing()


# Lanes of a warp


@builtin("cuda.syncwarp")
def syncwarp(call: Call) -> Value:
    mask = call.numbers(0, 1)
    call.frame.program.exchanges = True
    wait(call, _mask(call, mask[0]) if mask else str(ALL_LANES))
    return Nothing()


@builtin("cuda.all_sync", "cuda.any_sync", "cuda.eq_sync", "cuda.ballot_sync")
def vote(call: Call) -> Value:
    mask, predicate = call.numbers(2)
    if not dtypes.is_integer(predicate.type):
        call.refuse(
            f"the predicate of cuda.{call.name} is a whole number or a bool, and this is "
            f"{predicate.type}"
        )
    kind = "int32" if call.name == "ballot_sync" else "bool"
    return _exchange(call, mask, predicate, kind)


@builtin("cuda.match_any_sync", "cuda.match_all_sync")
def match(call: Call) -> Value:
    mask, value = call.numbers(2)
    kind = "int32" if call.name == "match_any_sync" else Tuple(("int32", "bool"))
    return _exchange(call, mask, value, kind)


@builtin("cuda.shfl_sync", "cuda.shfl_up_sync", "cuda.shfl_down_sync", "cuda.shfl_xor_sync")
def shuffle(call: Call) -> Value:
    mask, value, other = call.numbers(3)
    if value.type not in SHUFFLED:
        call.refuse(
            f"cuda.{call.name} moves int32, int64, float32 and float64, and this is {value.type}; "
            "convert it"
        )
    source = call.whole(other, f"the third argument of cuda.{call.name}")
    return _exchange(call, mask, value, value.type, source)


def _exchange(call: Call, mask: Number, value: Number, kind: Type, *codes: str) -> Value:
    call.frame.program.exchanges = True
    code = exact(call.frame, value).code
    result = wait(call, _mask(call, mask), code, *codes)
    if isinstance(kind, Tuple):
        return held(kind, [f"{result}[{i}]" for i in range(len(kind.items))])
    return held(kind, [result])


def _mask(call: Call, mask: Number) -> str:
    return f"{call.whole(mask, 'the mask of lanes')} & {ALL_LANES}"
