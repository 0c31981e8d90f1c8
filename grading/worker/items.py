"""Counts what packed data holds before it is unpacked: a few bytes can stand for endless data."""

from __future__ import annotations

from typing import Any

import torch

from grading.worker.limits import MAX_DEPTH, MAX_ITEMS
from grading.worker.transport import WireError

PLAIN = {type(None), bool, int, float, str}  # what JSON keeps as it is
ITEMS: dict[str, type] = {"tuple": tuple, "size": torch.Size, "frozenset": frozenset}


def count_items(value: Any, containers: list[Any]) -> None:
    """Refuses data that holds itself, or that is small only because it repeats the same list.

    value: packed. containers: [[kind, packed contents]], which references in it give by number;
    None for one that is not sent.
    """
    counter = _Counter(containers)
    if type(value) is list:
        counter.of_value(value, 0)
    for number, packed in enumerate(containers):
        if packed is not None:
            counter.of_container(number, 0)


class _Counter:
    """Items as a loop or repr would meet them."""

    def __init__(self, containers: list[Any]) -> None:
        self.containers = containers
        self.counts: dict[int, int] = {}  # by a container's number; 0 while it is being counted

    def of_value(self, packed: list[Any], depth: int) -> int:
        if len(packed) != 2 or type(packed[0]) is not str:
            return 1  # unpacking refuses what has no known form
        kind, content = packed
        if kind in ITEMS:
            return self.of_items(content, depth)
        if kind == "ref" and type(content) is int and 0 <= content < len(self.containers):
            return self.of_container(content, depth)
        return 1

    def of_container(self, number: int, depth: int) -> int:
        if number not in self.counts:
            if self.containers[number] is None:
                raise WireError("a reference to what was not sent")
            self.counts[number] = 0
            kind, contents = self.containers[number]
            total = 1
            for part in contents if kind == "dict" else [contents]:
                total += self.of_items(part, depth)
            self.counts[number] = total
        elif not self.counts[number]:
            raise WireError("data that holds itself can't cross")
        return self.counts[number]

    def of_items(self, contents: Any, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise WireError(f"data nested more than {MAX_DEPTH} deep can't cross")
        total = 1 + len(contents)
        for item in contents:
            if type(item) is list:
                total += self.of_value(item, depth + 1)
        if total > MAX_ITEMS:
            raise WireError(f"data of more than {MAX_ITEMS:,} items can't cross")
        return total
