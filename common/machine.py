"""How fast machines can be: data sheets with their source, and this machine's own ceilings."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from common import device, records, timing

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


# For dense matrices. The data sheets of H100 and H200 print twice these rates for tensor cores,
# "with sparsity": half of the entries are zeros.
HOPPER = {"fp32": 67e12, "tf32": 494.5e12, "fp16": 989.5e12, "bf16": 989.5e12, "fp8": 1979e12}
DATA_SHEETS = {
    "T4": Peaks("T4", 320e9, {"fp32": 8.1e12, "fp16": 65e12}, None, "NVIDIA T4 data sheet"),
    "V100": Peaks(
        "V100 SXM2", 900e9, {"fp32": 15.7e12, "fp16": 125e12}, None, "NVIDIA V100 data sheet"
    ),
    "A100": Peaks(
        "A100 SXM 80 GB",
        2039e9,
        {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12},
        None,
        "NVIDIA A100 data sheet",
    ),
    "H100": Peaks("H100 SXM", 3.35e12, HOPPER, None, "NVIDIA H100 data sheet"),
    "H200": Peaks("H200 SXM", 4.8e12, HOPPER, None, "NVIDIA H200 data sheet"),
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
        caption="Dense matrices. The data sheets of H100 and H200 print twice these tensor-core "
        "rates: for matrices half of whose entries are zeros.",
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
