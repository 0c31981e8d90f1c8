"""How fast machines can be: data sheets with their source, and this machine's own ceilings."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from common.hardware import device, timing
from common.ledger import records

if TYPE_CHECKING:
    import torch
    from rich.table import Table

FILE = "machine.json"


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The most that a machine can do. flops_per_s: by number format, for dense matrices."""

    device: str
    bandwidth_bytes_per_s: float
    flops_per_s: dict[str, float]
    overhead_s: float | None  # of one operation on one element; data sheets do not give it
    source: str  # a publication, or the date of the measurement

    @property
    def format(self) -> str:
        """The number format of its matrix units: bf16, fp16 or fp32."""
        return next(name for name in ("bf16", "fp16", "fp32") if name in self.flops_per_s)


# For dense matrices, with sums in fp32. Data sheets from the A100 on print twice these rates for
# tensor cores, too, "with sparsity": half of the entries are zeros. benchmarks look for these names
# in the device's, in this order: A100 before A10, L40S before L4.
HOPPER = {"fp32": 67e12, "tf32": 494.5e12, "fp16": 989.5e12, "bf16": 989.5e12, "fp8": 1979e12}


def _sheet(name: str, memory: float, source: str = "", **tera: float) -> Peaks:
    rates = {form: 1e12 * rate for form, rate in tera.items()}
    return Peaks(name, memory, rates, None, source or f"NVIDIA {name} data sheet")


AMPERE, ADA, BLACKWELL = (
    f"NVIDIA {name} architecture white paper (data sheet in its appendix)"
    for name in ("GA102 GPU", "Ada GPU", "RTX Blackwell GPU")
)
DATA_SHEETS = {
    "T4": _sheet("T4", 320e9, fp32=8.1, fp16=65),
    "V100": _sheet("V100 SXM2", 900e9, "NVIDIA V100 data sheet", fp32=15.7, fp16=125),
    "A100": _sheet(
        *("A100 SXM 80 GB", 2039e9, "NVIDIA A100 data sheet"),
        fp32=19.5,
        tf32=156,
        fp16=312,
        bf16=312,
    ),
    "A10": _sheet("A10", 600e9, fp32=31.2, tf32=62.5, fp16=125, bf16=125),
    "L40S": _sheet("L40S", 864e9, fp32=91.6, tf32=183, fp16=362.05, bf16=362.05, fp8=733),
    "L4": _sheet("L4", 300e9, fp32=30.3, tf32=60, fp16=121, bf16=121, fp8=242.5),
    "RTX 3090": _sheet("RTX 3090", 936e9, AMPERE, fp32=35.6, tf32=35.6, fp16=71, bf16=71),
    "RTX 4090": _sheet(
        *("RTX 4090", 1008e9, ADA), fp32=82.6, tf32=82.6, fp16=165.2, bf16=165.2, fp8=330.3
    ),
    "RTX 5090": _sheet(
        *("RTX 5090", 1792e9, BLACKWELL), fp32=104.8, tf32=104.8, fp16=209.5, bf16=209.5, fp8=419
    ),
    "H100": Peaks("H100 SXM", 3.35e12, HOPPER, None, "NVIDIA H100 data sheet"),
    "H200": Peaks("H200 SXM", 4.8e12, HOPPER, None, "NVIDIA H200 data sheet"),
    "B200": _sheet(
        *("B200", 8e12, "NVIDIA DGX B200 data sheet"),
        fp32=75,
        tf32=1125,
        fp16=2250,
        bf16=2250,
        fp8=4500,
    ),
}


def profile() -> Peaks:
    """This machine's measured `Peaks`: kept in machine.json, measured again on another device."""
    record: Any = records.load(FILE, _is_profile)
    if record is None or record["device"] != name():
        print(f"Measuring the ceilings of this machine ({name()}): a few seconds, once ...")
        record = dataclasses.asdict(measure_ceilings())
        records.save(FILE, record)
    return Peaks(**record)


def measure_ceilings() -> Peaks:
    """This machine's `Peaks`: the fastest memory, matmul and dispatch seen in a few seconds."""
    import torch

    on_gpu = device.has_gpu()
    where = "cuda" if on_gpu else "cpu"
    gpu_bytes = torch.cuda.get_device_properties(0).total_memory if on_gpu else 0
    # Many times the last-level cache, and a small part of memory.
    floats = min(2**28, gpu_bytes // 64) if on_gpu else 2**26
    size = 4096 if on_gpu else 1536
    formats = {"fp32": torch.float32} | (_half_format() if on_gpu else {})
    return Peaks(
        device=name(),
        bandwidth_bytes_per_s=_bandwidth_bytes_per_s(torch.ones(floats, device=where)),
        flops_per_s={
            form: _matmul_flops_per_s(torch.rand(size, size, device=where, dtype=dtype))
            for form, dtype in formats.items()
        },
        overhead_s=timing.measure(torch.ones(1, device=where).mul_, 1.0).median_s,
        source=f"measured {datetime.date.today()}",
    )


def multiplications_per_s() -> float:
    """float32 multiplications per second, with all operands in registers or the nearest cache.

    Each number is multiplied again and again, and many numbers take turns. No number comes from
    memory, so that this is a ceiling for programs that also use memory.
    """
    return _multiplications_per_s_of_gpu() if device.has_gpu() else _multiplications_per_s_of_cpu()


def _multiplications_per_s_of_cpu(times: int = 4000) -> float:
    import numba
    import numpy as np

    chain = 32  # long enough that loads and stores are few, short enough that chains overlap

    @numba.njit(parallel=True)
    def multiply(rows: np.ndarray, factor: np.float32, times: int) -> None:
        for thread in numba.prange(len(rows)):
            row = rows[thread]  # 8 KB, in the nearest cache
            for _ in range(times):
                for i in range(row.size):
                    value = row[i]
                    for _ in range(chain):
                        value *= factor
                    row[i] = value

    rows = np.ones((numba.get_num_threads(), 2048), np.float32)
    time_s = min(timing.measure(multiply, rows, np.float32(1), times, min_time_s=0.4).times_s)
    return rows.size * chain * times / time_s


def _multiplications_per_s_of_gpu(times: int = 200) -> float:
    import numba.cuda
    import numpy as np
    import torch

    cuda: Any = numba.cuda
    float32: Any = numba.float32
    chain, blocks, threads = 64, 32 * device.multiprocessors(), 256

    @cuda.jit
    def multiply(out: Any, factor: Any, times: int) -> None:
        a = float32(cuda.grid(1))
        b, c, d = a + float32(1), a + float32(2), a + float32(3)
        for _ in range(times):
            for _ in range(chain):  # a known number, so that the compiler writes them one by one
                a *= factor
                b *= factor
                c *= factor
                d *= factor
        out[cuda.grid(1)] = a + b + c + d

    out = torch.empty(blocks * threads, device="cuda")
    launch = multiply[blocks, threads]
    time_s = min(timing.measure(launch, out, np.float32(1), times, min_time_s=0.4).times_s)
    return 4 * chain * times * out.numel() / time_s


def name() -> str:
    """The GPU's name; without a GPU, the CPU's name and how many threads PyTorch uses."""
    import torch

    threads = "" if device.has_gpu() else f", {torch.get_num_threads()} threads"
    return device.name() + threads


def table(*machines: Peaks) -> Table:
    """A table of these `Peaks`, one row per machine."""
    import rich.box
    from rich.table import Table

    from common.ledger import show

    table = Table(
        *("machine", "memory", "fp32", "tf32", "bf16 or fp16", "fp8", "source"),
        box=rich.box.SIMPLE_HEAD,
        caption="Dense matrices. Many data sheets print twice these tensor-core rates: for "
        "matrices half of whose entries are zeros.",
        caption_justify="left",
    )
    for peaks in machines:
        rates = peaks.flops_per_s
        half = rates.get("bf16") or rates.get("fp16")
        shown = [rates.get("fp32"), rates.get("tf32"), half, rates.get("fp8")]
        memory = show(peaks.bandwidth_bytes_per_s, "B/s")
        flops = (show(rate, "FLOP/s") for rate in shown)
        table.add_row(peaks.device, memory, *flops, peaks.source)
    return table


def _bandwidth_bytes_per_s(x: torch.Tensor) -> float:
    """Bytes read and written per second, the better of copying x and scaling it in place.

    A processor that copies may first read the line that it will write: then there are three
    transfers, and two are counted.
    """
    y = x.clone()
    time_s = min(
        min(timing.measure(function, *args, min_time_s=0.4).times_s)
        for function, args in ((y.copy_, (x,)), (x.mul_, (1.0,)))
    )
    return 2 * x.numel() * x.itemsize / time_s


def _matmul_flops_per_s(a: torch.Tensor) -> float:
    """FLOP/s of the fastest product of a with itself."""
    import torch

    out = torch.empty_like(a)
    time_s = min(timing.measure(lambda: torch.mm(a, a, out=out), min_time_s=0.8).times_s)
    return 2 * len(a) ** 3 / time_s


def _half_format() -> dict[str, torch.dtype]:
    import torch

    if torch.cuda.is_bf16_supported(including_emulation=False):
        return {"bf16": torch.bfloat16}
    return {"fp16": torch.float16}


def _is_profile(record: Any) -> bool:
    try:
        peaks = Peaks(**record)
        numbers = peaks.bandwidth_bytes_per_s, record["overhead_s"], peaks.flops_per_s["fp32"]
        return min(numbers) > 0 and isinstance(peaks.device, str)
    except (KeyError, TypeError):
        return False
