"""Benchmarks: programs(call, clock, synchronize, repeats) that find the median time of a call."""

import itertools
import statistics

import numpy as np


def right_plain(call, clock, synchronize, repeats):
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def right_warms_up_three_times(call, clock, synchronize, repeats):
    for _ in range(3):
        call()
        synchronize()
    times = np.empty(repeats)
    for i in range(repeats):
        synchronize()
        times[i] = -clock()
        call()
        synchronize()
        times[i] += clock()
    return float(np.median(times))


def right_keeps_the_readings(call, clock, synchronize, repeats):
    def measured():
        synchronize()
        before = clock()
        call()
        synchronize()
        return before, clock()

    readings = [measured() for _ in range(1 + repeats)][1:]
    times = sorted(after - before for before, after in readings)
    return (times[(repeats - 1) // 2] + times[repeats // 2]) / 2


def right_reads_once_per_call(call, clock, synchronize, repeats):
    call()
    synchronize()
    readings = [clock()]
    while len(readings) <= repeats:
        call()
        synchronize()
        readings.append(clock())
    return statistics.median(after - before for before, after in itertools.pairwise(readings))


def right_waits_twice(call, clock, synchronize, repeats):
    times = []
    for i in range(repeats + 2):
        synchronize()
        synchronize()
        start = clock()
        call()
        synchronize()
        stop = clock()
        if i >= 2:
            times.append(stop - start)
    return statistics.median(times)


def wrong_no_warm_up(call, clock, synchronize, repeats):
    """It measures the first call, too, and the first call is slow."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_one_more_time(call, clock, synchronize, repeats):
    """The time of the warm-up is among the times."""
    times = []
    for _ in range(repeats + 1):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_warm_up_runs_on(call, clock, synchronize, repeats):
    """It does not wait for the warm-up, which still runs when the clock starts."""
    call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_never_waits(call, clock, synchronize, repeats):
    """It stops the clock when the work is queued, not when it is done."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_waits_too_late(call, clock, synchronize, repeats):
    """It reads the clock before it waits."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        stop = clock()
        synchronize()
        times.append(stop - start)
    return statistics.median(times)


def wrong_waits_at_the_end(call, clock, synchronize, repeats):
    """It waits once, after all calls: each time but the last is the launch's alone."""
    call()
    synchronize()
    times = []
    for i in range(repeats):
        start = clock()
        call()
        if i == repeats - 1:
            synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_starts_late(call, clock, synchronize, repeats):
    """It starts the clock after the call, so the launch is not measured."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        call()
        start = clock()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_mean(call, clock, synchronize, repeats):
    """It returns the mean, which a single interrupted call spoils."""
    call()
    synchronize()
    start = clock()
    for _ in range(repeats):
        call()
        synchronize()
    return (clock() - start) / repeats


def wrong_mean_of_a_queue(call, clock, synchronize, repeats):
    """It times all calls together, so launches hide behind work, and returns the mean."""
    call()
    synchronize()
    start = clock()
    for _ in range(repeats):
        call()
    synchronize()
    return (clock() - start) / repeats


def wrong_trimmed_mean(call, clock, synchronize, repeats):
    """It returns the mean without the slowest and the fastest time, which is not the median."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    kept = sorted(times)[1:-1] if repeats > 2 else times
    return sum(kept) / len(kept)


def wrong_fastest(call, clock, synchronize, repeats):
    """It returns the fastest time."""
    call()
    synchronize()
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        best = min(best, clock() - start)
    return best


def wrong_last(call, clock, synchronize, repeats):
    """It returns the time of the last call alone."""
    call()
    synchronize()
    start = stop = clock()
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        stop = clock()
    return stop - start


def wrong_unsorted(call, clock, synchronize, repeats):
    """It takes the time in the middle without sorting the times."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return (times[(repeats - 1) // 2] + times[repeats // 2]) / 2


def wrong_upper_middle(call, clock, synchronize, repeats):
    """Of an even number of times it takes the upper of the middle two, not their mean."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return sorted(times)[repeats // 2]


def wrong_one_too_few(call, clock, synchronize, repeats):
    """It makes one call too few."""
    call()
    synchronize()
    times = []
    for _ in range(max(1, repeats - 1)):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_always_three(call, clock, synchronize, repeats):
    """It makes three calls, whatever `repeats` says."""
    call()
    synchronize()
    times = []
    for _ in range(3):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_one_start(call, clock, synchronize, repeats):
    """It reads the start once, before the loop, so each time contains those before it."""
    call()
    synchronize()
    start = clock()
    times = []
    for _ in range(repeats):
        call()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def wrong_milliseconds(call, clock, synchronize, repeats):
    """It returns milliseconds."""
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        synchronize()
        times.append(clock() - start)
    return 1000 * statistics.median(times)
