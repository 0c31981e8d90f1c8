"""Caches with LRU replacement: how many visits fetch their line."""

from collections import OrderedDict, deque


def right_dict(lines: list[int], room: int) -> int:
    cache, count = {}, 0
    for line in lines:
        if line in cache:
            del cache[line]
        else:
            count += 1
            if len(cache) == room:
                del cache[next(iter(cache))]
        cache[line] = None
    return count


def right_ordered_dict(lines: list[int], room: int) -> int:
    cache, count = OrderedDict(), 0
    for line in lines:
        count += line not in cache
        cache[line] = True
        cache.move_to_end(line)
        if len(cache) > room:
            cache.popitem(last=False)
    return count


def right_list(lines: list[int], room: int) -> int:
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache.append(line)
        cache = cache[-room:]
    return count


def right_time_stamps(lines: list[int], room: int) -> int:
    used, count = {}, 0
    for step, line in enumerate(lines):
        if line not in used:
            count += 1
            if len(used) >= room:
                used.pop(min(used, key=lambda kept: used[kept]))
        used[line] = step
    return count


def right_distances(lines: list[int], room: int) -> int:
    count, last = 0, {}
    for step, line in enumerate(lines):
        if line not in last or len(set(lines[last[line] + 1 : step])) >= room:
            count += 1
        last[line] = step
    return count


def right_slots(lines: list[int], room: int) -> int:
    slots, used, count = [-1] * room, [-1] * room, 0  # -1 is no line
    for step, line in enumerate(lines):
        if line in slots:
            slot = slots.index(line)
        else:
            count += 1
            slot = used.index(min(used))
        slots[slot], used[slot] = line, step
    return count


def right_pairs(lines: list[int], room: int) -> int:
    recent = []
    count = 0
    for line, before in zip(lines, [-1] + lines):  # noqa: B905  (one more than needed)
        if line != before:
            count += line not in recent
            recent = [line] + [kept for kept in recent if kept != line][: room - 1]
    return count


def wrong_first_in_first_out(lines: list[int], room: int) -> int:
    """A line that is found does not become the most recently used one (FIFO)."""
    cache, count = deque(), 0
    for line in lines:
        if line not in cache:
            count += 1
            if len(cache) == room:
                cache.popleft()
            cache.append(line)
    return count


def wrong_most_recent_goes(lines: list[int], room: int) -> int:
    """The most recently used line goes, not the least recently used one."""
    cache, count = {}, 0
    for line in lines:
        if line in cache:
            del cache[line]
        else:
            count += 1
            if len(cache) == room:
                cache.popitem()
        cache[line] = None
    return count


def wrong_one_too_few(lines: list[int], room: int) -> int:
    """It keeps one line too few, unless room is 1."""
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache.append(line)
        cache = cache[-max(1, room - 1) :]
    return count


def wrong_one_too_many(lines: list[int], room: int) -> int:
    """It keeps one line too many."""
    cache, count = {}, 0
    for line in lines:
        if line in cache:
            del cache[line]
        else:
            count += 1
            if len(cache) > room:
                del cache[next(iter(cache))]
        cache[line] = None
    return count


def wrong_steps(lines: list[int], room: int) -> int:
    """A line goes after so many steps, not after so many other lines."""
    last, count = {}, 0
    for step, line in enumerate(lines):
        count += line not in last or step - last[line] > room
        last[line] = step
    return count


def wrong_never_drops(lines: list[int], room: int) -> int:
    """Nothing ever leaves the cache."""
    return len(set(lines))


def wrong_every_step(lines: list[int], room: int) -> int:
    """Every step counts as a fetch."""
    return len(lines)


def wrong_counts_finds(lines: list[int], room: int) -> int:
    """It counts the visits that find their line."""
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
            count += 1
        cache.append(line)
        cache = cache[-room:]
    return count


def wrong_forgets_everything(lines: list[int], room: int) -> int:
    """A full cache forgets all its lines, not only one."""
    cache, count = set(), 0
    for line in lines:
        if line not in cache:
            count += 1
            if len(cache) == room:
                cache.clear()
            cache.add(line)
    return count


def wrong_line_zero(lines: list[int], room: int) -> int:
    """Line 0 is never found, because 0 counts as false."""
    cache, count = [], 0
    for line in lines:
        found = next((kept for kept in cache if kept == line), None)
        if found:
            cache.remove(line)
        else:
            count += 1
            if line in cache:
                cache.remove(line)
        cache.append(line)
        cache = cache[-room:]
    return count


def wrong_least_often(lines: list[int], room: int) -> int:
    """The line that was used least often goes (LFU), not the one used least recently."""
    uses, order, count = {}, {}, 0
    for step, line in enumerate(lines):
        if line not in uses:
            count += 1
            if len(uses) == room:
                victim = min(uses, key=lambda kept: (uses[kept], order[kept]))
                del uses[victim], order[victim]
            uses[line] = 0
        uses[line] += 1
        order[line] = step
    return count


def wrong_second_chance(lines: list[int], room: int) -> int:
    """A line that was found gets a second chance (CLOCK), which only resembles LRU."""
    cache, count = [], 0
    for line in lines:
        place = next((i for i, kept in enumerate(cache) if kept[0] == line), None)
        if place is not None:
            cache[place] = (line, True)
            continue
        count += 1
        while len(cache) == room:
            oldest, used = cache.pop(0)
            if used:
                cache.append((oldest, False))
        cache.append((line, False))
    return count


def wrong_repeats_only(lines: list[int], room: int) -> int:
    """Only the visit right after one to the same line is free, whatever the room."""
    return sum(i == 0 or lines[i - 1] != line for i, line in enumerate(lines))


def wrong_first_fetch_is_free(lines: list[int], room: int) -> int:
    """The first visit to a line is not counted."""
    count, last = 0, {}
    for step, line in enumerate(lines):
        if line in last and len(set(lines[last[line] + 1 : step])) >= room:
            count += 1
        last[line] = step
    return count


def wrong_largest_goes(lines: list[int], room: int) -> int:
    """The line with the largest number goes."""
    cache, count = set(), 0
    for line in lines:
        if line not in cache:
            count += 1
            if len(cache) == room:
                cache.remove(max(cache))
            cache.add(line)
    return count


def wrong_big_rooms(lines: list[int], room: int) -> int:
    """No more than four lines have room, whatever `room` says."""
    cache, count = [], 0
    for line in lines:
        if line in cache:
            cache.remove(line)
        else:
            count += 1
        cache.append(line)
        cache = cache[-min(room, 4) :]
    return count
