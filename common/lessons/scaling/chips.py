"""The GPUs that lab 16 plans with: data sheets, links, and how fast the best matmul really is."""

import functools
import math
import re
from typing import NamedTuple

# Peaks, memory and the best measured matmuls in 16 bits are checked against the tables of S.
# Bekman, Machine Learning Engineering, https://github.com/stas00/ml-engineering
# (compute/accelerator), which cite the makers' data sheets. Chips in ESTIMATED are not in its table
# of matmuls: their share of the peak is that of the nearest chip of the same maker; for an H100 of
# 500 W, the rate falls with the root of the power.
ESTIMATED = frozenset(
    """
    P100 T4 V100 V100-16GB A10 A10G A30 A40 A6000 A800 L4 L40 L40S 3090 4090 5090 6000-Ada H100-96GB
    H100-NVL H100-PCIe H20 H200-NVL H800 GB300 MI210 MI250 MI300A MI350X TPU-v2 TPU-v3 TPU-v4
    TPU-v5e TPU-v5p TPU-v6e TPU-v7 Trainium Trainium2 910 910B
    """.split()  # noqa: SIM905, a list is easier to read as words
)


class Chip(NamedTuple):
    """A GPU: rates per second, for dense matrices in 16 bits. Links count one direction."""

    name: str
    peak_flops_per_s: float
    best_matmul_flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    node_bytes_per_s: float  # from one GPU to the others of its node
    network_bytes_per_s: float  # usual for its time; a publication may state another one. Clouds
    # have 1.6 to 25 GB/s per A100: half of NVIDIA's own 25 stands for those that say nothing.
    processors: int  # multiprocessors, which share out the tiles of a matmul
    watts: float
    source: str


def _chip(name: str, *figures: float, source: str) -> Chip:
    peak, best, memory_tb_s, memory_gb, node_gb_s, network_gb_s, processors, watts = figures
    rates = peak * 1e12, best * 1e12, memory_tb_s * 1e12, memory_gb * 1e9
    links = node_gb_s * 1e9, network_gb_s * 1e9
    return Chip(name, *rates, *links, int(processors), watts, source)


NVIDIA, AMD, INTEL = "NVIDIA data sheet", "AMD data sheet", "Intel data sheet"
GOOGLE, AWS = "Google Cloud, TPU system architecture", "AWS Neuron documentation"
SECRET = math.nan  # watts that no data sheet states
# TFLOP/s: peak, best matmul; memory TB/s, GB; node and network GB/s; processors; watts. A TPU's
# slice and a Trainium have no multiprocessors that share out tiles: 0.
CHIPS = [
    _chip("T4", 65, 50, 0.32, 16, 16, 3, 40, 70, source=NVIDIA),
    _chip("P100", 21.2, 18, 0.732, 16, 80, 12.5, 56, 300, source=NVIDIA),
    _chip("V100", 125, 105, 0.9, 32, 150, 12.5, 80, 300, source=NVIDIA),
    _chip("V100-16GB", 125, 105, 0.9, 16, 150, 12.5, 80, 300, source=NVIDIA),
    _chip("A100-40GB", 312, 271.2, 1.555, 40, 300, 12.5, 108, 400, source=NVIDIA),
    _chip("A100", 312, 271.2, 2.039, 80, 300, 12.5, 108, 400, source=NVIDIA),
    _chip("A800", 312, 271.2, 2.039, 80, 200, 12.5, 108, 400, source=NVIDIA),
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
    _chip("H100-NVL", 835, 670, 3.9, 94, 64, 50, 132, 400, source=NVIDIA),
    _chip("H200-NVL", 835, 670, 4.8, 141, 64, 50, 132, 600, source=NVIDIA),
    _chip("H20", 148, 140, 4.0, 96, 450, 50, 78, 400, source=NVIDIA),
    _chip("B200", 2250, 1745, 8.0, 180, 900, 50, 148, 1000, source=NVIDIA),
    _chip("GB200", 2500, 1822, 8.0, 186, 900, 50, 152, 1200, source=NVIDIA),
    _chip("B300", 2250, 1769, 8.0, 270, 900, 100, 148, 1100, source=NVIDIA),
    _chip("GB300", 2500, 1822, 8.0, 279, 900, 100, 152, 1400, source=NVIDIA),
    _chip("MI250", 181, 139, 1.6, 64, 150, 25, 104, 250, source=AMD + ", one of two dies"),
    _chip("MI250X", 191.5, 147, 1.6, 64, 150, 25, 110, 280, source=AMD + ", one of two dies"),
    _chip("MI300X", 1307, 668.4, 5.3, 192, 448, 50, 304, 750, source=AMD),
    _chip("MI325X", 1307, 784.9, 6.0, 256, 448, 50, 304, 1000, source=AMD),
    _chip("MI300A", 981, 590, 5.3, 128, 192, 25, 228, 550, source=AMD),
    _chip("MI350X", 2300, 1500, 8.0, 288, 538, 50, 256, 1000, source=AMD),
    _chip("MI355X", 2500, 1565, 8.0, 288, 538, 50, 256, 1400, source=AMD),
    _chip("A100-PCIe", 312, 252.9, 1.935, 80, 32, 12.5, 108, 300, source=NVIDIA),
    _chip("A10", 125, 100, 0.6, 24, 32, 12.5, 72, 150, source=NVIDIA),
    _chip("A10G", 70, 65, 0.6, 24, 32, 12.5, 80, 300, source=NVIDIA),
    _chip("A30", 165, 135, 0.933, 24, 100, 12.5, 56, 165, source=NVIDIA),
    _chip("L4", 121, 91, 0.3, 24, 32, 12.5, 58, 72, source=NVIDIA),
    _chip("L40", 181, 150, 0.864, 48, 32, 25, 142, 300, source=NVIDIA),
    _chip("A40", 149.7, 120, 0.696, 48, 32, 12.5, 84, 300, source=NVIDIA),
    _chip("A6000", 154.8, 124, 0.768, 48, 32, 12.5, 84, 300, source=NVIDIA),
    _chip("3090", 71, 65, 0.936, 24, 16, 3, 82, 350, source=NVIDIA + ", RTX 3090"),
    _chip("4090", 165.2, 150, 1.008, 24, 16, 3, 128, 450, source=NVIDIA + ", RTX 4090"),
    _chip("5090", 209.5, 190, 1.792, 32, 32, 3, 170, 575, source=NVIDIA + ", RTX 5090"),
    _chip("6000-Ada", 364, 290, 0.96, 48, 32, 25, 142, 300, source=NVIDIA + ", RTX 6000 Ada"),
    _chip("L40S", 362, 290, 0.864, 48, 32, 25, 142, 350, source=NVIDIA),
    _chip("H100-PCIe", 756, 562, 2.0, 80, 64, 50, 114, 350, source=NVIDIA),
    _chip("MI210", 181, 139, 1.6, 64, 150, 25, 104, 300, source=AMD),
    _chip("Gaudi2", 432, 418.7, 2.45, 96, 262.5, 37.5, 0, 600, source=INTEL),
    _chip("Gaudi3", 1678, 1243, 3.7, 128, 525, 75, 0, 900, source=INTEL),
    _chip("TPU-v2", 46, 44, 0.7, 16, 62, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v3", 123, 117, 0.9, 32, 164, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v4", 275, 261, 1.2, 32, 150, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v5e", 197, 187, 0.82, 16, 100, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v5p", 459, 436, 2.765, 95, 300, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v6e", 918, 780, 1.64, 32, 224, 12.5, 0, SECRET, source=GOOGLE),
    _chip("TPU-v7", 2307, 1960, 7.37, 192, 600, 12.5, 0, SECRET, source=GOOGLE),
    _chip("Trainium", 190, 170, 0.82, 32, 192, 6.25, 0, SECRET, source=AWS),
    _chip("Trainium2", 667, 560, 2.9, 96, 640, 25, 0, SECRET, source=AWS),
    _chip("910", 256, 215, 1.2, 32, 45, 12.5, 0, 310, source="Huawei, Ascend 910"),
    _chip("910B", 320, 270, 1.6, 64, 196, 25, 0, 310, source="reports on Huawei's Ascend 910B"),
]


# GPUs that one NVLink switch joins, where that is more than a node: NVIDIA's GB200 NVL72.
DOMAINS = {"GB200": 72, "GB300": 72}

SPELLINGS = {  # what publications write, and how the names above say it
    r"[\s_,()\[\]/]+": "-",
    r"(\d)-?GI?B\b": r"\1GB",
    r"GAUDI-": "GAUDI",
    r"TRAINIUM-(?=\d)": "TRAINIUM",
    r"TRN(?=[12])": "TRAINIUM",
    r"TRAINIUM1": "TRAINIUM",
    r"V5-?LITE": "V5E",
    r"TRILLIUM": "TPU-V6E",
    r"IRONWOOD|TPU-?7X": "TPU-V7",
    r"\bMI(?=-\d)-": "MI",
    r"^V(?=[2-7][EP]?\b)": "TPU-V",
    r"ASCEND-?910-?([A-C]?)\d?\b": r"910\1",
}


def chip(name: str, peak_flops_per_s: float | None = None) -> Chip:
    """The chip that a publication names, as "A100-SXM4-80GB" or "NVIDIA GB200 NVL72".

    All parts of our name must stand in it, each at the beginning of a number or word. Of several,
    the longest: "GB200" is no "B200". Another chip is like the one whose peak is nearest to the
    stated one, with its rates in proportion; KeyError if no peak is stated.
    """
    return _found(str(name), peak_flops_per_s)


@functools.lru_cache(maxsize=1000)  # a thousand published runs name some twenty chips
def _found(name: str, peak_flops_per_s: float | None) -> Chip:
    """See chip."""
    plain = name.upper()
    for pattern, other in SPELLINGS.items():
        plain = re.sub(pattern, other, plain)
    found = [known for known in CHIPS if _names(known.name.upper(), plain)]
    if found:
        return max(found, key=lambda known: len(known.name))
    if not peak_flops_per_s:
        raise KeyError(f"no data sheet of {name!r} is here, and its peak is not stated")
    near = min(CHIPS, key=lambda known: abs(math.log(known.peak_flops_per_s / peak_flops_per_s)))
    factor = peak_flops_per_s / near.peak_flops_per_s
    return near._replace(
        name=name,
        peak_flops_per_s=peak_flops_per_s,
        best_matmul_flops_per_s=factor * near.best_matmul_flops_per_s,
        memory_bytes_per_s=factor * near.memory_bytes_per_s,
        source=f"its stated peak, and the rest as a {near.name}",
    )


def _names(ours: str, theirs: str) -> bool:
    """Whether all parts of our name stand in theirs, none within another word or number."""
    return all(re.search(rf"(?<![A-Z0-9]){part}(?![0-9])", theirs) for part in _parts(ours))


def _parts(ours: str) -> list[str]:
    """The parts of a name; "TPU-V4" may be written as one word."""
    return [r"TPU-?" + ours[4:]] if ours.startswith("TPU-") else ours.split("-")
