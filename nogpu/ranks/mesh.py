"""A mesh of ranks: each rank has a place along several axes, and a group of ranks along each."""

import math
from typing import Any

import numpy as np


def mesh(dist: Any, **sizes: int) -> dict[str, Any]:
    """{axis: the group of the ranks that differ from this one in their place along this axis only}.

    sizes: of the axes, the one whose neighbours are furthest apart first. mesh(dist, node=2, gpu=4)
    numbers the ranks of 2 nodes with 4 GPUs each as launchers do: the groups "gpu" are the ranks of
    a node, and a group "node" has the ranks with the same place in each node. All ranks call it:
    they make all groups in the same order, as dist.new_group needs.
    """
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if not sizes or any(type(size) is not int or size < 1 for size in sizes.values()):
        raise ValueError(f"mesh: sizes {sizes}; they must be whole numbers from 1 on")
    if math.prod(sizes.values()) != world_size:
        product = " × ".join(map(str, sizes.values()))
        raise ValueError(
            f"mesh: {product} is {math.prod(sizes.values())}, but there are {world_size} ranks"
        )
    numbers = np.arange(world_size).reshape(*sizes.values())
    lines = [
        (axis, line.tolist())
        for place, (axis, size) in enumerate(sizes.items())
        for line in np.moveaxis(numbers, place, -1).reshape(-1, size)
    ]
    made = [(axis, line, dist.new_group(line)) for axis, line in lines]
    return {axis: group for axis, line, group in made if rank in line}
