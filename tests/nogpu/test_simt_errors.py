"""What the simulator reports: races, barriers, bounds, unwritten memory, launches, refusals."""

import numpy as np
import pytest
import torch
from numba import float32, int32

from nogpu import simt
from nogpu.kernels.errors import ERRORS
from nogpu.simt import cuda

rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def refused(kernel, *arguments, grid=1, block=32, counting=False):
    """The message with which a launch fails."""
    with pytest.raises(ERRORS) as caught:
        kernel.count(grid, block, *arguments) if counting else kernel[grid, block](*arguments)
    return type(caught.value), str(caught.value)


# --- races


@cuda.jit
def no_first_barrier(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[63 - t]


@cuda.jit
def no_second_barrier(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    for k in range(2):
        s[t] = x[t] + k
        cuda.syncthreads()
        out[t] += s[(t + 1) % 64]


def test_a_missing_barrier_is_a_race_and_a_read_of_nothing():
    report = simt.count(no_first_barrier, 1, 64, floats(64), floats(64), seed=0)
    (race,) = report.races
    assert (
        race.space == "shared"
        and race.array == "s"
        and race.verbs == ("writes", "reads")
        and race.words == 64
    )
    assert (
        race.threads[0][0] == race.index[0] == 63 - race.threads[1][0]
        and race.lines[0] + 1 == race.lines[1]
    )
    index, other = race.index[0], race.threads[1][0]
    assert str(race) == (
        f"race on s[{index}] in shared memory: thread ({index}, 0, 0) writes it in line "
        f"{race.lines[0]} (`{race.texts[0]}`), thread ({other}, 0, 0) reads it in line "
        f"{race.lines[1]} (`{race.texts[1]}`), no barrier "
        "between them (block (0, 0, 0)); 64 words in all"
    )
    (unwritten,) = report.unwritten
    assert unwritten.times == 32 and "which nothing has written; 32 such reads in all" in str(
        unwritten
    )
    assert str(race) in str(report) and str(unwritten) in str(report)
    kind, message = refused(no_first_barrier, floats(64), floats(64), block=64)
    assert kind is simt.UnwrittenError and "in shared memory, which nothing has written" in message


def test_a_kernel_that_is_right_by_luck_is_caught():
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    report = simt.count(no_second_barrier, 1, 64, x, out)
    assert len(report.races) == 1 and report.races[0].words == 64 and not report.unwritten
    wrong = 0
    for seed in range(8):
        out[:] = 0
        no_second_barrier.launch(1, 64, x, out, seed=seed)
        wrong += not np.array_equal(out, np.roll(2 * x + 1, -1))
    assert wrong == 8


def test_threads_of_one_warp_race_unless_syncwarp_is_between():
    def text(between):
        return f"""
def kernel(out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = t
    {between}
    out[t] = s[t // 32 * 32 + (t + 1) % 32]
"""

    counts = [
        len(simt.count(simt.compile_source(text(between), "kernel"), 1, 64, np.zeros(64)).races)
        for between in ("pass", "cuda.syncwarp()", "cuda.syncthreads()")
    ]
    assert counts == [1, 0, 0]
    across = text("cuda.syncwarp()").replace("t // 32 * 32 + (t + 1) % 32", "(t + 1) % 64")
    assert len(simt.count(simt.compile_source(across, "kernel"), 1, 64, np.zeros(64)).races) == 1


def test_writes_of_one_instruction_race():
    @cuda.jit
    def kernel(out):
        out[cuda.threadIdx.x // 2] = 1

    (race,) = simt.count(kernel, 1, 8, np.zeros(8)).races
    assert (
        race.space == "global"
        and race.array == "out"
        and race.verbs == ("writes", "writes")
        and race.words == 4
    )


def test_blocks_race_across_barriers():
    @cuda.jit
    def kernel(x, out):
        x[cuda.grid(1)] = 1
        cuda.syncthreads()
        out[cuda.grid(1)] = x[(cuda.grid(1) + 1) % x.size]

    (race,) = simt.count(kernel, 4, 8, np.zeros(32), np.zeros(32)).races
    assert (
        race.blocks[0] != race.blocks[1]
        and race.words == 4
        and "blocks run in any order" in str(race)
    )


def test_lost_updates_are_races_and_atomics_are_not():
    def text(update):
        return f"def kernel(out, seen):\n    {update}\n    seen[cuda.grid(1)] = 0 * cuda.grid(1)\n"

    counts = [
        len(
            simt.count(
                simt.compile_source(text(update), "kernel"), 2, 8, np.zeros(1), np.zeros(16)
            ).races
        )
        for update in (
            "out[0] += 1",
            "cuda.atomic.add(out, 0, 1)",
            "seen[cuda.grid(1)] = cuda.atomic.add(out, 0, 1)",
        )
    ]
    assert counts[0] >= 2 and counts[1:] == [0, 0]


def test_an_atomic_races_with_a_plain_read():
    @cuda.jit
    def kernel(out, seen):
        cuda.atomic.add(out, 0, 1)
        seen[cuda.grid(1)] = out[0]

    races = simt.count(kernel, 1, 8, np.zeros(1), np.zeros(8)).races
    assert races[0].verbs == ("updates atomically", "reads")


LAST_BLOCK = """
def kernel(x, partial, tickets, out):
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    is_last = cuda.shared.array(1, int32)
    partial[b, t] = x[b, t]
    {before}
    if t == 0:
        {hand_over}
        is_last[0] = ticket == cuda.gridDim.x - 1
    {after}
    if {reader}:
        out[t] = 0
        for i in range(cuda.gridDim.x):
            out[t] += partial[i, t]
"""
TICKET = "ticket = cuda.atomic.add(tickets, 0, 1)"


@pytest.mark.parametrize(
    "parts, races",
    [
        ({}, False),
        ({"hand_over": f"cuda.threadfence_system(); {TICKET}"}, False),
        (
            {
                "hand_over": f"cuda.threadfence(); {TICKET}; "
                "tickets[0] = 0 if ticket == cuda.gridDim.x - 1 else tickets[0]"
            },
            True,
        ),
        (
            {
                "hand_over": f"cuda.threadfence(); {TICKET}\n"
                "        if ticket == cuda.gridDim.x - 1:\n            tickets[0] = 0"
            },
            False,
        ),
        (
            {"before": "cuda.threadfence(); cuda.syncthreads()", "hand_over": TICKET},
            False,
        ),  # each its own
        ({"before": "cuda.syncthreads(); cuda.threadfence()", "hand_over": TICKET}, False),
        ({"before": "cuda.threadfence()", "hand_over": TICKET}, True),
        ({"before": "if t: cuda.threadfence()\n    cuda.syncthreads()", "hand_over": TICKET}, True),
        ({"hand_over": TICKET}, True),
        ({"hand_over": f"cuda.threadfence_block(); {TICKET}"}, True),
        ({"hand_over": f"{TICKET}; cuda.threadfence()"}, True),
        ({"before": "pass"}, True),
        ({"reader": "b == 0"}, True),
        (
            {
                "hand_over": "cuda.threadfence(); ticket = cuda.atomic.add(tickets, b, 1); "
                "ticket = 7"
            },
            True,
        ),
    ],
)
def test_fence_and_atomic_update_hand_over_what_the_block_wrote(parts, races):
    chosen = {
        "before": "cuda.syncthreads()",
        "hand_over": f"cuda.threadfence(); {TICKET}",
        "after": "cuda.syncthreads()",
        "reader": "is_last[0]",
    } | parts
    kernel = simt.compile_source(LAST_BLOCK.format(**chosen), "kernel")
    x, out = (
        np.random.default_rng(0).integers(9, size=(8, 64)).astype(np.float32),
        np.zeros(64, np.float32),
    )
    reports = []
    for seed in range(4):
        reports.append(
            simt.count(
                kernel, 8, 64, x, np.zeros_like(x), np.zeros(8, np.int32), out, seed=seed
            ).races
        )
        assert reports[-1] or out.tolist() == x.sum(0).tolist()
    # Without a ticket the block that reads may, by luck, have run last.
    assert (
        sum(map(bool, reports)) >= (3 if parts.get("reader") else 4) if races else not any(reports)
    )


@pytest.mark.parametrize("grid, block", [(64, 1), (1, 64), (8, 40)])
@pytest.mark.parametrize(
    "fence, races",
    [
        ("cuda.threadfence()", (False, False)),
        ("cuda.threadfence_block()", (False, True)),
        ("pass", (True, True)),
    ],
)
def test_a_lock_keeps_what_it_guards(fence, races, grid, block):
    kernel = simt.compile_source(
        f"""
def kernel(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    {fence}
    cuda.atomic.exch(lock, 0, 0)
""",
        "kernel",
    )
    total = np.zeros(1, np.int64)
    report = simt.count(kernel, grid, block, np.zeros(1, np.int32), total)
    assert total[0] == grid * block and report.global_atomics.bytes == 8 * grid * block
    within, between = (
        [race for race in report.races if (race.blocks[0] == race.blocks[1]) == same]
        for same in (True, False)
    )
    assert [bool(within), bool(between)] == [races[0] and block > 1, races[1] and grid > 1]
    assert all(race.words == 1 for race in report.races)


def test_a_lock_in_shared_memory_is_a_block_s_own():
    kernel = simt.compile_source(
        """
def kernel(total, mine):
    lock = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        lock[0] = 0
    cuda.syncthreads()
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    mine[cuda.blockIdx.x] += 1
    total[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
""",
        "kernel",
    )
    races = simt.count(kernel, 3, 40, np.zeros(1), np.zeros(3)).races
    assert races and all(
        race.array == "total" and race.blocks[0] != race.blocks[1] for race in races
    )


def test_two_words_at_the_same_place_of_shared_and_global_memory_hand_nothing_over():
    kernel = simt.compile_source(
        """
def kernel(count, out):
    ticket = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        ticket[0] = 0
    cuda.syncthreads()
    if t == 0:
        out[0] = 1
        cuda.threadfence()
        cuda.atomic.add(ticket, 0, 1)
    if t == 32:
        cuda.atomic.add(count, 0, 1)
        out[0] = 2
""",
        "kernel",
    )
    for seed in range(4):  # in either order of the warps
        (race,) = simt.count(kernel, 1, 64, np.zeros(1, np.int32), np.zeros(1), seed=seed).races
        assert race.array == "out"


def test_a_race_names_the_index_in_two_dimensions_and_the_array_through_a_view():
    @cuda.jit
    def kernel(x):
        x[1, cuda.threadIdx.x // 32] = cuda.threadIdx.x

    (race,) = simt.count(kernel, 1, 64, torch.zeros(3, 2).t()[:, :2]).races
    assert race.array == "x" and race.index in ((1, 0), (1, 1))


# --- barriers


def test_a_barrier_that_some_threads_never_reach():
    @cuda.jit
    def kernel(x):
        if cuda.threadIdx.x < 16:
            cuda.syncthreads()
        x[0] = 1

    kind, message = refused(kernel, floats(4))
    assert (
        kind is simt.BarrierError
        and "line" in message
        and "thread (0, 0, 0) of block (0, 0, 0) waits at this barrier" in message
    )
    assert (
        "thread (16, 0, 0) has ended without it; every thread of the block must come to the same"
        in message
    )
    assert "GPUs since Volta go on without a thread that has ended; older ones hang" in message


def test_a_kernel_that_returns_a_value():
    @cuda.jit
    def kernel(x):
        if cuda.grid(1) < x.size:
            return x[0]

    message = refused(kernel, floats(4))[1]
    assert "`return x[0]`" in message
    assert "a kernel returns nothing; it writes its results into an array" in message


def test_two_barriers_in_two_branches():
    @cuda.jit
    def kernel(x):
        if cuda.threadIdx.x % 2:
            cuda.syncthreads()
        else:
            cuda.syncthreads()

    kind, message = refused(kernel, floats(4))
    assert kind is simt.BarrierError and "thread (1, 0, 0) waits in line" in message


def test_a_barrier_in_a_loop_of_different_lengths():
    @cuda.jit
    def kernel(x):
        for k in range(4):
            if k >= cuda.threadIdx.x:
                cuda.syncthreads()

    for counting in (False, True):
        assert refused(kernel, floats(4), block=3, counting=counting)[0] is simt.BarrierError
    assert (
        "in another iteration of the loop" in refused(kernel, floats(4), block=3, counting=True)[1]
    )


def test_an_early_return_before_a_barrier():
    @cuda.jit
    def kernel(x):
        if cuda.grid(1) >= x.size:
            return
        cuda.syncthreads()

    assert "has ended without it" in refused(kernel, floats(33), block=64)[1]


def test_a_shuffle_that_a_lane_of_its_mask_never_joins():
    def message(mask, condition, block=32):
        text = (
            f"def kernel(x):\n    if {condition}:\n        x[0] = cuda.shfl_sync({mask}, x[0], 0)\n"
            "    cuda.syncthreads()\n"
        )
        return refused(simt.compile_source(text, "kernel"), floats(4), block=block)

    kind, text = message("0xffffffff", "cuda.laneid < 8")
    assert (
        kind is simt.BarrierError
        and "waits at this exchange, and thread (8, 0, 0) waits in line 4" in text
    )
    assert "is not in its own mask 0x00000001" in message("1", "cuda.laneid < 8")[1]
    kind, text = message("0xf0", "4 <= cuda.laneid < 8")
    assert (
        kind is simt.ThreadError and "asks lane 0 for a value, and that lane takes no part" in text
    )


# --- bounds, division, variables without a value


def test_out_of_bounds_names_thread_index_and_shape():
    @cuda.jit
    def kernel(x, out):
        row, column = cuda.grid(2)
        out[row, column] = x[row, column + 1]

    kind, message = refused(kernel, floats(4, 8), floats(4, 8), block=(4, 8))
    assert kind is simt.OutOfBoundsError and issubclass(kind, IndexError)
    assert (
        "(`out[row, column] = x[row, column + 1]`): thread (0, 7, 0) of block (0, 0, 0) "
        "reaches x[0, 8]" in message
    )
    assert message.endswith("outside of its shape (4, 8)")


@pytest.mark.parametrize(
    "line, words",
    [
        (
            "out[cuda.grid(1) - 1] = 0",
            "reaches out[-1], outside of its shape (8,); Numba counts a negative index from the "
            "end, without a warning",
        ),
        ("out[x.size] = 0", "reaches out[8], outside of its shape (8,)"),
        ("s[t + 1] = 0", "reaches s[4], outside of its shape (4,)"),
        ("cuda.atomic.add(out, 9 + t, 1)", "reaches out[9], outside of its shape (8,)"),
        ("y = x[3:t + 9]", "reaches x[3:9], outside of its shape (8,)"),
        ("m[t] = 0", "reaches m[2], outside of its shape (2,)"),
        ("out[t] = s[t]", "reads s[0] in shared memory, which nothing has written"),
        ("out[t] = m[t - t]", "reads m in local memory, which nothing has written"),
        ("out[0] = 1 // t", "divides a whole number by zero"),
        ("k = 1 % (t - t)", "divides a whole number by zero"),
        ("for k in range(0, 4, t):\n        pass", "counts in steps of zero"),
        ("if t > 99:\n        y = 1\n    out[0] = y", "uses y before it has a value"),
    ],
)
def test_errors_of_threads(line, words):
    text = f"""
def kernel(x, out):
    s = cuda.shared.array(4, float32)
    m = cuda.local.array(2, float32)
    t = cuda.threadIdx.x
    {line}
"""
    kernel = simt.compile_source(text, "kernel")
    message = refused(kernel, floats(8), floats(8), block=4)[1]
    assert words in message and message.startswith(
        f"kernel, line {6 + (line.count(chr(10)) if 'if' in line else 0)} (`"
    )


def test_floating_point_division_by_zero_is_not_an_error():
    kernel = simt.compile_source(
        "def kernel(x, out):\n    out[0] = x[0] / x[1]\n    out[1] = 1 / x[1]\n"
        "    out[2] = 0 / x[1]",
        "kernel",
    )
    out = np.zeros(3)
    kernel[1, 1](np.array([-2.0, 0.0]), out)
    assert out[0] == -np.inf and out[1] == np.inf and np.isnan(out[2])


# --- launches and arguments


@cuda.jit
def nothing(x):
    x[0] = x[0]


@pytest.mark.parametrize(
    "configuration, words",
    [
        ((0, 32), "grid (0, 1, 1) is not possible: each length is at least 1"),
        ((1, 1025), "block (1025, 1, 1) is not possible"),
        ((1, (32, 33)), "has 1,056 threads; a block has 1,024 at most"),
        (((1, 1, 70000), 1), "at most (2147483647, 65535, 65535)"),
        ((1, (1, 1, 65)), "block (1, 1, 65) is not possible"),
        ((1.5, 1), "grid is a whole number or a tuple of up to three, and 1.5 is not"),
        ((1, ()), "block is a whole number or a tuple of up to three"),
        ((1, (1, 1, 1, 1)), "block is a whole number or a tuple of up to three"),
    ],
)
def test_launches_that_a_gpu_would_refuse(configuration, words):
    with pytest.raises(simt.LaunchError) as caught:
        nothing[configuration](floats(4))
    assert words in str(caught.value)


def test_launches_without_configuration_or_with_other_arguments():
    with pytest.raises(
        simt.LaunchError, match=r"say how many threads run it: nothing\[grid, block\]"
    ):
        nothing(floats(4))
    with pytest.raises(simt.LaunchError, match="a launch configuration is"):
        nothing[3]
    with pytest.raises(
        simt.LaunchError, match=r"nothing takes 1 arguments \(x\), and 2 were given"
    ):
        nothing[1, 1](floats(4), 2)


@pytest.mark.parametrize(
    "argument, words",
    [
        ([1, 2], "x is a list; a kernel takes NumPy arrays, PyTorch tensors and 64-bit numbers"),
        (None, "x is a NoneType"),
        (2**64, "x is a int; a kernel takes"),
        (np.zeros(3, complex), "x holds complex128; arrays may hold bool, int8"),
        (np.zeros(3, ">f4"), "x holds >f4"),
        (np.array(3.0), "x has no dimension"),
        (torch.zeros(3, dtype=torch.bfloat16), "x is a tensor of torch.bfloat16, which NumPy"),
        (torch.zeros(3, device="meta"), "x is on meta; the simulator works on the CPU's memory"),
        (
            np.zeros(4, [("a", "i1"), ("b", "<f4")])["b"],
            "does not lie on multiples of its element's 4 bytes",
        ),
    ],
)
def test_arguments_that_a_kernel_cannot_take(argument, words):
    assert words in refused(nothing, argument)[1]


def test_arrays_of_two_dtypes_on_one_memory():
    @cuda.jit
    def kernel(x, y):
        x[0] = y[0]

    memory = np.zeros(8, np.float32)
    assert (
        "x and y share memory, but not their dtype"
        in refused(kernel, memory, memory.view(np.int32))[1]
    )


def test_an_array_that_can_only_be_read():
    x = floats(4)
    x.flags.writeable = False
    assert "`x` can only be read" in refused(nothing, x)[1]


# --- Python that the simulator does not know


@pytest.mark.parametrize(
    "line, words",
    [
        ("y = cuda.random(x)", "cuda.random is not known to the simulator; it knows grid"),
        ("y = cuda.activemask()", "only the hardware knows which lanes are active together"),
        ("y = math.gamma(1)", "math.gamma is not known to the simulator"),
        ("y = np.sqrt(2.0)", "numpy.sqrt is not known to the simulator"),
        ("y = cuda.grid(4)", "takes 1, 2 or 3, written as a number"),
        ("i, j = cuda.grid(1)", "2 names on the left, 1 values on the right"),
        ("y = x[0, 1]", "has 2 indices for a 1-dimensional float32 array in global memory"),
        ("y = x[1.5]", "an index is a whole number, and `1.5` is float64"),
        ("y = x[0][0]", "is float32 and cannot be indexed"),
        ("y = x.T", "has .shape, .size, .ndim and .dtype, and no .T"),
        ("y = 1.5 & 1", "& works on whole numbers; these are float64 and int64"),
        ("y = ~1.5", "~ works on whole numbers; this is float64"),
        (
            "for k in range(2.0):\n        pass",
            "range takes whole numbers, and `range(2.0)` has float64",
        ),
        (
            "for k in (1, 2.5):\n        pass",
            "a loop is over numbers of one type, and `(1, 2.5)` has int64 and float64",
        ),
        (
            "for k in x:\n        pass",
            "a loop is over range(...) or a tuple, and `x` is a 1-dimensional float32 array",
        ),
        (
            "for k in enumerate(x):\n        pass",
            "a kernel's for loop is `for name in range(...)`, or over a tuple of numbers",
        ),
        (
            "y = x + 1",
            "`x` is a 1-dimensional float32 array in global memory where one number is needed",
        ),
        (
            "y = x\n    if x[0] > 0:\n        y = 1",
            "y is int64 on one path and a 1-dimensional float32 array in global memory on another",
        ),
        ("y = z", "z is not defined"),
        ("break", "break is outside of a loop"),
        ("continue", "continue is outside of a loop"),
        ("y = x[0, 1:2]", "a slice stands alone: a[first:last]"),
        ("y = y + 1", "y has no value yet in this line"),
        ("y = min(x)", "min takes two numbers or more; over an array, write a loop"),
        (
            "y = cuda.syncthreads_count(x[0] > 0)",
            "is a whole number, and this is bool; convert it with int(...)",
        ),
        (
            "y = cuda.shfl_sync(-1, True, 0)",
            "moves int32, int64, float32 and float64, and this is bool",
        ),
        ("y = cuda.any_sync(-1, x[0])", "is a whole number or a bool, and this is float32"),
        ("cuda.atomic.add(x, 0)", "takes (ary, idx, val), and 2 arguments were given"),
        ("cuda.atomic.inc(x, 0, 1)", "works on uint32, uint64, and this array holds float32"),
        (
            "cuda.atomic.add(cuda.local.array(1, float32), 0, 1)",
            "works on an array in global or shared memory",
        ),
        ("y = cuda.shared.array(4, 8)", "`8` is not a dtype"),
        (
            "y = cuda.shared.array((2, cuda.blockDim.x), float32)",
            "must be numbers known before the run",
        ),
        ("y = helper(x[0])", "takes (a, b), and 1 arguments were given"),
        ("y = store(x)", "`store(x)` gives no value"),
        (
            "y = sometimes(x[0])",
            "every path through a device function that returns a value must return one",
        ),
        ("y = math.exp(np.float16(1))", "math.exp does not take a float16"),
        ("y = cuda.threadIdx", "cuda.threadIdx is not a number here"),
        ("x.shape[0] = 1", "is not an element of an array"),
        ("(x[0], x[1])[0] = 1", "is not an element of an array"),
        ("y = np.minimum(x[0], 1)", "a thread has single numbers: min(...)"),
        ("y = np.exp(x[0])", "a thread has single numbers: math.exp(...)"),
        ("y = x[:, 0]", "a row is a[i], an element a[i, j]"),
        ("print(x[0])", "print is"),
    ],
)
def test_refusals(line, words):
    text = f"""
def helper(a, b):
    return a + b
def store(a):
    a[0] = 1
def sometimes(a):
    if a > 0:
        return 1
def kernel(x):
    {line}
"""
    with pytest.raises(simt.KernelError) as caught:
        simt.compile_source(text, "kernel")[1, 1](floats(4))
    assert words in str(caught.value)


TABLE = np.arange(4.0)


@cuda.jit
def prints(x):
    print(x[0])


@cuda.jit
def divides(x):
    x[0] = divmod(7, 3)[0]


@cuda.jit
def reads_a_table(x):
    x[0] = TABLE[2]


@pytest.mark.parametrize(
    "kernel, words",
    [
        (
            prints,
            "print is Python's own; a kernel has range, len, min, max, abs, round, pow, int, "
            "float, bool; write what you want to see into an array",
        ),
        (divides, "write a // b and a % b"),
        (
            reads_a_table,
            "TABLE is an array from outside: give it as an argument, or read it through "
            "cuda.const.array_like(TABLE)",
        ),
    ],
)
def test_a_refusal_says_what_to_write(kernel, words):
    assert words in refused(kernel, floats(4))[1]


def test_a_long_chain_of_conditions_is_refused():
    kernel = simt.compile_source(
        f"def kernel(x):\n    i = cuda.grid(1)\n    x[0] = {' and '.join(['i'] * 500)}\n", "kernel"
    )
    assert "too long" in refused(kernel, floats(4))[1]


def test_many_elifs_are_not_deep_nesting():
    arms = "".join(f"    elif i == {k}:\n        x[i] = {k * k}\n" for k in range(1, 32))
    kernel = simt.compile_source(
        f"def kernel(x):\n    i = cuda.grid(1)\n    if i == 0:\n        x[i] = 0\n{arms}", "kernel"
    )
    x = floats(32)
    kernel[1, 32](x)
    assert np.array_equal(x, np.arange(32) ** 2)


def test_a_tensor_that_numpy_cannot_hold_is_refused():
    assert "cannot hold" in refused(prints, torch._neg_view(torch.zeros(4)))[1]
    assert "cannot hold" in refused(prints, torch.zeros(2, 2).to_sparse())[1]


def test_constants_are_computed_from_powers_and_shifts():
    kernel = simt.compile_source(
        "N = 2 ** 3\nM = 1 << 2\ndef kernel(x):\n    x[0] = N + M\n", "kernel"
    )
    x = floats(4)
    kernel[1, 1](x)
    assert x[0] == 12
    for constant in ("9 ** 9 ** 9", "1 << 100", "(-1) ** 0.5", "1.5 << 1", "1 << -1", "1e300 ** 2"):
        with pytest.raises(simt.KernelError, match="not a constant|at most 64"):
            simt.compile_source(f"N = {constant}\ndef kernel(x):\n    x[0] = N\n", "kernel")[1, 1](
                x
            )


def test_refusals_of_functions():
    with pytest.raises(simt.KernelError, match="is not a kernel; decorate the function"):
        simt.count(print, 1, 1)
    with pytest.raises(simt.KernelError, match="is not a function with a name"):
        cuda.jit(lambda x: x)
    with pytest.raises(simt.KernelError, match="does not know the option link of jit"):
        cuda.jit(link=["a.cu"])
    with pytest.raises(simt.KernelError, match="does not know a signature of jit"):
        cuda.jit("void(float32[:])")
    names = {"cuda": cuda}
    exec("def kernel(x):\n    x[0] = 1\n", names)
    with pytest.raises(simt.KernelError, match="the source of kernel cannot be found"):
        cuda.jit(names["kernel"])[1, 1](floats(1))
    with pytest.raises(simt.KernelError, match="add is not defined; the text defines sub"):
        simt.compile_source("def sub(x):\n    x[0] = 1\n", "add")
    with pytest.raises(ValueError, match="constants has cuda, a name that is taken"):
        simt.compile_source("def sub(x):\n    x[0] = 1\n", "sub", {"cuda": 1})


def test_an_unsolved_exercise_raises_not_implemented_error_when_it_is_used():
    @cuda.jit(device=True)
    def part(x):
        """To be written."""
        raise NotImplementedError("write part")

    @cuda.jit
    def whole(x):
        x[0] = part(x[0])

    for kernel in (part, whole):
        with pytest.raises(NotImplementedError, match="part is not written yet"):
            kernel[1, 1](floats(1))
    with pytest.raises(NotImplementedError):
        simt.compile_source("def kernel(x):\n    raise NotImplementedError\n", "kernel")


def test_functions_that_a_kernel_does_not_call_may_be_any_python():
    text = (
        "def kernel(x):\n    x[0] = 7\n"
        "def launch(n=3):\n    return [kernel[1, k] for k in range(n)]\n"
    )
    x = floats(1)
    simt.compile_source(text, "kernel")[1, 1](x)
    assert x[0] == 7


def test_names_from_outside_that_a_kernel_cannot_use():
    items, plain = [1, 2], len

    def undecorated(a):
        return a

    @cuda.jit
    def with_list(x):
        x[0] = items[0]

    @cuda.jit
    def with_function(x):
        x[0] = undecorated(1)

    @cuda.jit
    def with_alias(x):
        x[0] = plain(x)

    @cuda.jit
    def with_module(x):
        x[0] = torch.zeros(1)

    assert (
        "items is a list; from outside a kernel may use numbers" in refused(with_list, floats(4))[1]
    )
    assert "undecorated is a function" in refused(with_function, floats(4))[1]
    assert "cannot use the module torch; it has cuda and math" in refused(with_module, floats(4))[1]
    x = floats(4)
    with_alias[1, 1](x)
    assert x[0] == 4


@pytest.mark.parametrize(
    "name", ["grid", "threadIdx", "shared", "syncthreads", "shfl_sync", "any_sync"]
)
def test_names_of_a_kernel_outside_of_one(name):
    with pytest.raises(AttributeError, match="has a meaning only inside a kernel"):
        getattr(cuda, name)


def test_cuda_outside_of_a_kernel():
    assert cuda.is_available() and cuda.synchronize() is None
    with pytest.raises(AttributeError, match="not known to the simulator"):
        cuda.profiling  # noqa: B018
    device = cuda.to_device(np.arange(3))
    device.copy_to_device(np.array([5, 6, 7]))
    host = np.zeros(3, int)
    assert device.copy_to_host(host) is host and host.tolist() == [5, 6, 7]
    assert cuda.device_array(2, np.int8).tolist() == [127, 127] and int32 is not None


def test_a_notebook_shows_an_error_without_the_simulators_own_frames():
    assert simt.KernelError("f, line 3: why")._render_traceback_() == [
        "\033[31mKernelError\033[0m: f, line 3: why"
    ]


def test_a_device_function_is_not_launched():
    """Numba: "Cannot compile a device function as a kernel"."""

    @cuda.jit(device=True, inline=True)
    def double(x):
        x[0] *= 2

    @cuda.jit(device=False)
    def kernel(x):
        double(x)

    x = np.ones(1, np.float32)
    kernel[1, 1](x)
    assert x[0] == 2
    for launch in (double[1, 1], lambda x: simt.count(double, 1, 1, x)):
        with pytest.raises(simt.LaunchError, match="double is a device function"):
            launch(x)
    text = simt.compile_source("@cuda.jit(device=True)\ndef double(x):\n    x[0] *= 2", "double")
    with pytest.raises(simt.LaunchError, match="double is a device function"):
        text[1, 1](x)
    assert x[0] == 2


def test_a_grid_in_elements_is_refused_at_once():
    @cuda.jit
    def nothing(x):
        pass

    kind, message = refused(nothing, floats(1), grid=10**6, block=256)
    assert kind is simt.LaunchError
    assert "256,000,000 threads" in message and "in blocks, not in elements" in message
