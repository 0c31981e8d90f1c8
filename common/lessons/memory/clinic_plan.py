"""Plans of buffers in one arena: (lifetimes) to offsets. lifetimes: [(bytes, first, last), ...].

Right: whole numbers from 0 on, and no two buffers overlap that are live in a common step. A plan
may waste memory.
"""


def first_fit(lifetimes, order, meets):
    offsets, done = [0] * len(lifetimes), []
    for i in order:
        size = lifetimes[i][0]
        at = 0
        for j in sorted(done, key=offsets.__getitem__):
            if meets(lifetimes[i], lifetimes[j]):
                if offsets[j] - at >= size:
                    break
                at = max(at, offsets[j] + lifetimes[j][0])
        offsets[i] = at
        done.append(i)
    return offsets


def common_step(a, b):
    return a[1] <= b[2] and b[1] <= a[2]


def right_as_they_come(lifetimes):
    return first_fit(lifetimes, range(len(lifetimes)), common_step)


def right_large_first(lifetimes):
    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i][0])
    return first_fit(lifetimes, order, common_step)


def right_no_reuse(lifetimes):
    offsets, end = [], 0
    for size, _, _ in lifetimes:
        offsets.append(end)
        end += size
    return offsets


def right_with_a_hole(lifetimes):
    return [at + 16 for at in first_fit(lifetimes, range(len(lifetimes)), common_step)]


def wrong_all_at_zero(lifetimes):
    """All buffers lie at 0."""
    return [0] * len(lifetimes)


def wrong_last_step_free(lifetimes):
    """It gives a buffer's bytes away in the buffer's last step."""
    return first_fit(
        lifetimes, range(len(lifetimes)), lambda a, b: a[1] < b[2] and b[1] < a[2] or a[1] == b[1]
    )


def wrong_same_first_step(lifetimes):
    """Two buffers that are born in one step, of which one also dies there, share bytes."""
    return first_fit(
        lifetimes,
        range(len(lifetimes)),
        lambda a, b: common_step(a, b) and not (a[1] == b[1] and min(a[2], b[2]) == a[1]),
    )


def wrong_enclosed(lifetimes):
    """It does not see a buffer whose life lies within that of another one."""
    return first_fit(
        lifetimes,
        range(len(lifetimes)),
        lambda a, b: common_step(a, b) and not (b[1] < a[1] and a[2] < b[2]),
    )


def wrong_around(lifetimes):
    """It does not see a buffer whose life lies around that of another one."""
    return first_fit(
        lifetimes,
        range(len(lifetimes)),
        lambda a, b: common_step(a, b) and not (a[1] < b[1] and b[2] < a[2]),
    )


def wrong_one_byte(lifetimes):
    """Neighbours overlap by one byte."""
    return [max(0, at - 1) for at in first_fit(lifetimes, range(len(lifetimes)), common_step)]


def wrong_gap_too_small(lifetimes):
    """It takes any gap, whether or not the buffer fits into it."""
    offsets, done = [0] * len(lifetimes), []
    for i, (_, first, last) in enumerate(lifetimes):
        at = 0
        for j in sorted(done, key=offsets.__getitem__):
            if lifetimes[j][1] <= last and first <= lifetimes[j][2]:
                if offsets[j] > at:
                    break
                at = max(at, offsets[j] + lifetimes[j][0])
        offsets[i] = at
        done.append(i)
    return offsets


def wrong_last_end(lifetimes):
    """A buffer is placed after the neighbour that begins last, not after the one that ends last."""
    offsets, done = [0] * len(lifetimes), []
    for i, (_, first, last) in enumerate(lifetimes):
        for j in sorted(done, key=offsets.__getitem__):
            if lifetimes[j][1] <= last and first <= lifetimes[j][2]:
                offsets[i] = offsets[j] + lifetimes[j][0]
        done.append(i)
    return [min(at, 3 * max(size for size, _, _ in lifetimes)) for at in offsets]


def wrong_negative(lifetimes):
    """The first buffer lies before the arena's start."""
    offsets = first_fit(lifetimes, range(len(lifetimes)), common_step)
    shift = lifetimes[0][0] if lifetimes else 0
    return [at - shift for at in offsets]


def wrong_too_few(lifetimes):
    """It forgets the last buffer."""
    return first_fit(lifetimes, range(len(lifetimes)), common_step)[:-1]


def wrong_sorted(lifetimes):
    """Its offsets are in the order of placement, large buffers first."""
    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i][0])
    offsets = first_fit(lifetimes, order, common_step)
    return [offsets[i] for i in order]


def wrong_fractions(lifetimes):
    """Its offsets are no whole numbers."""
    return [at + 0.5 for at in first_fit(lifetimes, range(len(lifetimes)), common_step)]


def wrong_long_lives(lifetimes):
    """It believes that no buffer lives longer than three steps."""
    short = [(size, first, min(last, first + 2)) for size, first, last in lifetimes]
    return first_fit(short, range(len(lifetimes)), common_step)


def wrong_large_ones(lifetimes):
    """It takes sizes modulo 64."""
    small = [(size % 64, first, last) for size, first, last in lifetimes]
    return first_fit(small, range(len(lifetimes)), common_step)
