"""The GPUs that lab 16 plans with: data sheets, links, and how fast the best matmul really is."""

from typing import NamedTuple

# The best matmuls that were measured, in 16 bits: S. Bekman, Machine Learning Engineering, "Maximum
# Achievable Matmul FLOPS", https://github.com/stas00/ml-engineering (compute/accelerator). Where
# that table has no row, the share of the peak is that of the nearest GPU of the same maker; for an
# H100 of 500 W, the rate falls with the root of the power.
MATMULS = "Bekman, Machine Learning Engineering, compute/accelerator"


class Chip(NamedTuple):
    """A GPU: rates per second, for dense matrices in 16 bits. Links count one direction."""

    name: str
    peak_flops_per_s: float
    best_matmul_flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    node_bytes_per_s: float  # from one GPU to the others of its node
    network_bytes_per_s: float  # usual for its time; a publication may state another one
    processors: int  # multiprocessors, which share out the tiles of a matmul
    watts: float
    source: str


def _chip(name: str, *figures: float, source: str) -> Chip:
    peak, best, memory_tb_s, memory_gb, node_gb_s, network_gb_s, processors, watts = figures
    rates = peak * 1e12, best * 1e12, memory_tb_s * 1e12, memory_gb * 1e9
    links = node_gb_s * 1e9, network_gb_s * 1e9
    return Chip(name, *rates, *links, int(processors), watts, source)


NVIDIA, AMD = "NVIDIA data sheet", "AMD data sheet"
# TFLOP/s: peak, best matmul; memory TB/s, GB; node and network GB/s; multiprocessors; watts
CHIPS = [
    _chip("V100", 125, 105, 0.9, 32, 150, 12.5, 80, 300, source=NVIDIA),
    _chip("A100-40GB", 312, 271.2, 1.555, 40, 300, 25, 108, 400, source=NVIDIA),
    _chip("A100", 312, 271.2, 2.039, 80, 300, 25, 108, 400, source=NVIDIA),
    _chip("A800", 312, 271.2, 2.039, 80, 200, 25, 108, 400, source=NVIDIA),
    _chip(
        "H100-96GB",
        989.4,
        683,
        2.4,
        96,
        450,
        50,
        132,
        500,
        source="Meta, Grand Teton: an H100 of 500 W",
    ),
    _chip("H100", 989.4, 794.5, 3.35, 80, 450, 50, 132, 700, source=NVIDIA),
    _chip("H800", 989.4, 794.5, 3.35, 80, 200, 50, 132, 700, source=NVIDIA),
    _chip("H200", 989.4, 794.5, 4.8, 141, 450, 50, 132, 700, source=NVIDIA),
    _chip("GH200", 989.4, 828.6, 4.0, 96, 450, 50, 132, 900, source=NVIDIA),
    _chip("H20", 148, 140, 4.0, 96, 450, 50, 78, 500, source=NVIDIA),
    _chip("B200", 2250, 1745, 8.0, 180, 900, 50, 148, 1000, source=NVIDIA),
    _chip("GB200", 2500, 1822, 8.0, 186, 900, 50, 152, 1200, source=NVIDIA),
    _chip("B300", 2250, 1769, 8.0, 270, 900, 100, 148, 1100, source=NVIDIA),
    _chip("GB300", 2500, 1822, 8.0, 279, 900, 100, 152, 1400, source=NVIDIA),
    _chip("MI250X", 191.5, 147, 1.6, 64, 150, 25, 110, 280, source=AMD + ", one of two dies"),
    _chip("MI300X", 1307, 668.4, 5.3, 192, 448, 50, 304, 750, source=AMD),
    _chip("MI325X", 1307, 784.9, 6.0, 256, 448, 50, 304, 1000, source=AMD),
    _chip("MI355X", 2500, 1565, 8.0, 288, 538, 50, 256, 1400, source=AMD),
]


def chip(name: str) -> Chip:
    """The chip that a publication names, as "A100-80GB" or "NVIDIA GB200 NVL72"; KeyError if none.

    Of several names that fit, the longest: "GB200" is no "B200".
    """
    plain = name.upper().replace(" ", "-").replace("_", "-")
    found = [known for known in CHIPS if known.name.upper() in plain]
    if not found:
        raise KeyError(f"{name!r} is none of {', '.join(known.name for known in CHIPS)}")
    return max(found, key=lambda known: len(known.name))
