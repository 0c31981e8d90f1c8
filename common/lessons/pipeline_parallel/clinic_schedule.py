"""Schedules of a pipeline that claim to be 1F1B: (stage, stages, microbatches) to a list of tasks.

Right: every F and B once per microbatch, in GPipe's time, and stage s holds at most min(m, p − s)
microbatches.
"""


def right_ahead(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def right_phases(stage, stages, microbatches):
    ahead = min(microbatches, stages - stage - 1)
    warm_up = [("F", i) for i in range(ahead)]
    steady = [task for i in range(microbatches - ahead) for task in (("F", i + ahead), ("B", i))]
    return warm_up + steady + [("B", i) for i in range(microbatches - ahead, microbatches)]


def right_by_room(stage, stages, microbatches):
    tasks, forwards, backwards = [], 0, 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < stages - stage:
            tasks.append(("F", forwards))
            forwards += 1
        else:
            tasks.append(("B", backwards))
            backwards += 1
    return tasks


def wrong_gpipe(stage, stages, microbatches):
    """It is GPipe: it holds all microbatches."""
    return [(kind, i) for kind in "FB" for i in range(microbatches)]


def wrong_in_turn(stage, stages, microbatches):
    """No stage runs ahead of another, so one stage works at a time."""
    return [(kind, i) for i in range(microbatches) for kind in "FB"]


def wrong_one_more_ahead(stage, stages, microbatches):
    """It runs one forward too many ahead and holds one microbatch too many."""
    ahead = min(microbatches, stages - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_one_less_ahead(stage, stages, microbatches):
    """It runs one forward too few ahead, and waits."""
    ahead = max(0, min(microbatches, stages - 2 - stage))
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_no_drain(stage, stages, microbatches):
    """It forgets the last backwards."""
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        tasks += [("F", i + ahead), ("B", i)]
    return tasks


def wrong_few_microbatches(stage, stages, microbatches):
    """With fewer microbatches than stages it runs microbatches that do not exist."""
    ahead = stages - 1 - stage
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_gpipe_for_few(stage, stages, microbatches):
    """With at most as many microbatches as stages it is GPipe, so a late stage holds too many."""
    if microbatches <= stages:
        return [(kind, i) for kind in "FB" for i in range(microbatches)]
    ahead = stages - 1 - stage
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_reversed_drain(stage, stages, microbatches):
    """The last backwards run in reversed order, and wait for gradients that come last."""
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        tasks += [("F", i + ahead), ("B", i)]
    return tasks + [("B", i) for i in reversed(range(microbatches - ahead, microbatches))]


def wrong_twice(stage, stages, microbatches):
    """It runs the last backward twice."""
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return [*tasks, tasks[-1]]


def wrong_single_stage(stage, stages, microbatches):
    """With a single stage it runs all forwards first."""
    if stages == 1:
        return [(kind, i) for kind in "FB" for i in range(microbatches)]
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_first_stage_for_all(stage, stages, microbatches):
    """Every stage does what the first one should, so later stages hold too many microbatches."""
    ahead = min(microbatches, stages - 1)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


def wrong_backward_first(stage, stages, microbatches):
    """In the steady state the backward comes before the forward: the last stage waits for ever."""
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        tasks.append(("B", i))
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
    return tasks


def wrong_long(stage, stages, microbatches):
    """From the ninth microbatch on it runs one more forward ahead."""
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    forward = ahead
    for i in range(microbatches):
        while forward < min(microbatches, i + ahead + 1 + (i >= 8)):
            tasks.append(("F", forward))
            forward += 1
        tasks.append(("B", i))
    return tasks
