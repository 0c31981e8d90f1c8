"""The labs' kernels, compiled for each kind of GPU that students have; no GPU is needed.

    python benchmarks/cards.py [--capability 75 80] [--brief] [--output FILE.md] [--raw FILE.json]

Each kernel that a lab launches, in each configuration that the lab's functions choose on such a GPU
(benchmarks/chosen.py), is compiled, and its shared memory, registers and threads are compared with
what a block may have (common/hardware/gpu_limits.py). The raw file keeps what was found: a kernel
that has not changed since is not compiled again. --brief: compile no more than one kernel of each
name and capability, the largest; the gate does that (tests/common/test_gpu_limits.py).
"""

import argparse
import json
import math
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import chosen
from common.hardware import device
from common.hardware.gpu_limits import LIMITS, Limits

RAW = Path(__file__).with_suffix(".json")
MOST_S = 60.0  # of a processor, for one kernel


Launch = chosen.Launch | chosen.Threads


class Needs(NamedTuple):
    """What a block of a compiled kernel takes. error: why it does not compile, or ""."""

    threads: int
    shared_bytes: int
    registers: int  # per thread
    local_bytes: int  # per thread: spilled to memory
    error: str = ""


def fits(needs: Needs, limits: Limits) -> bool:
    """Whether a multiprocessor of this capability has room for a block."""
    return (
        not needs.error
        and needs.threads <= limits.threads
        and needs.shared_bytes <= limits.shared_bytes
        and needs.registers <= limits.registers_per_thread
        and needs.registers * needs.threads <= limits.registers
    )


def compiled(launch: Launch) -> Needs:
    """What a launch needs, by the compilers of Triton or Numba and NVIDIA's assembler."""
    import triton

    if isinstance(launch, chosen.Threads):
        return _compiled_by_numba(launch)
    from triton.backends.compiler import GPUTarget

    capability = int(launch.options.arch.removeprefix("sm"))
    target = GPUTarget("cuda", capability, 32)
    try:
        made = triton.compile(launch.source, target=target, options=launch.options.__dict__)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Needs(0, 0, 0, 0, why[-300:])
    registers, local_bytes = used(made.asm["cubin"])
    warps = int((re.search(r"\.reqntid (\d+)", made.asm["ptx"]) or [0, 0])[1]) // 32
    return Needs(
        32 * max(warps, launch.options.num_warps), made.metadata.shared, registers, local_bytes
    )


def _compiled_by_numba(launch: chosen.Threads) -> Needs:
    import numba
    import triton
    from numba.cuda import dispatcher

    from benchmarks import simt_hardware

    numba_cuda: Any = numba.cuda
    capability = divmod(launch.capability, 10)
    gpu = types.SimpleNamespace(compute_capability=capability)  # which device functions ask for
    with mock.patch.object(dispatcher, "get_current_device", lambda: gpu):
        kernel = simt_hardware.lab_kernels(numba_cuda)[launch.function]
        arrays = tuple(eval(text, vars(numba)) for text in launch.arrays)  # noqa: S307 - ours
        ptx, _ = numba_cuda.compile_ptx(kernel.py_func, arrays, cc=capability)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        command = [
            triton.knobs.nvidia.ptxas_blackwell.path,
            "-v",
            f"--gpu-name=sm_{launch.capability}",
        ]
        command += [str(file), "-o", str(file.with_suffix(".cubin"))]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
    text = made.stdout + made.stderr
    registers, shared, stack = (
        int((re.search(pattern, text) or [0, 0])[1])
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes stack frame")
    )
    return Needs(launch.size, shared, registers, stack)


def used(cubin: bytes) -> tuple[int, int]:
    """(registers, bytes of local memory) per thread, as NVIDIA's cuobjdump reads them."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stack, registers = (re.search(rf"{name}:(\d+)", text) for name in ("STACK", "REG"))
    if registers is None or stack is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {text[:200]}")
    return int(registers[1]), int(stack[1])


def largest(launches: Iterable[Launch]) -> list[Launch]:
    """The largest configuration of each kernel."""
    by_kernel: dict[str, Launch] = {}
    for launch in sorted(launches, key=lambda each: each.size):
        by_kernel[launch.function] = launch
    return list(by_kernel.values())


def compile_all(
    launches: Iterable[Launch], until: float, most_s: float = MOST_S
) -> Iterator[tuple[str, Needs]]:
    """(digest, what it needs) of each launch that is begun before `until`, in parallel.

    Each compiler runs in a process of its own, which is ended after most_s seconds of a processor.
    """
    context = multiprocessing.get_context("fork")
    running: dict[Any, tuple[Launch, Any]] = {}
    waiting = iter(launches)
    while True:
        while len(running) < device.cores() and time.monotonic() < until:
            if (launch := next(waiting, None)) is None:
                break
            answer, question = context.Pipe(duplex=False)
            process = context.Process(target=_compile, args=(launch, question, most_s))
            process.start()
            question.close()
            running[answer] = launch, process
        if not running:
            return
        ready: list[Any] = connection.wait(list(running))
        for answer in ready:
            launch, process = running.pop(answer)
            try:
                needs = Needs(*answer.recv())
            except EOFError:
                needs = Needs(0, 0, 0, 0, f"the compiler ended, after {most_s:.0f} s at most")
            process.join()
            yield launch.digest, needs


def _compile(launch: Launch, question: Any, most_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(most_s) + 10, int(most_s) + 10))
    question.send(tuple(compiled(launch)))


def read(file: Path) -> dict[str, Needs]:
    """{digest: what it needs} of an earlier run with this version of Triton."""
    import triton

    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    same = kept.get("triton") == triton.__version__
    return {digest: Needs(*needs) for digest, needs in kept["needs"].items()} if same else {}


def write(file: Path, needs: Mapping[str, Needs]) -> None:
    """Keep what was found, a launch per line."""
    import triton

    lines = (f"{json.dumps(digest)}: {json.dumps(needs[digest])}" for digest in sorted(needs))
    text = ",\n".join(lines)
    file.write_text(f'{{"triton": "{triton.__version__}", "needs": {{\n{text}\n}}}}\n')


def problems(launches: Iterable[Launch], needs: Mapping[str, Needs], limits: Limits) -> list:
    """A sentence for each launch that does not compile, or needs more than a block may have."""
    found = []
    for launch in launches:
        each = needs.get(launch.digest)
        if each and each.error:
            found.append(f"{launch.name}: {each.error}")
        elif each and not launch.optional and not fits(each, limits):
            found.append(f"{launch.name}: {each}, and a block may have {limits}")
    return found


def table(found: Mapping[int, list[Launch]], needs: Mapping[str, Needs]) -> str:
    """A line for each capability, as Markdown."""
    lines = [
        "| capability | cards | kernels | configurations | compiled | fit | left out by the lab | "
        "most shared memory | most registers |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for capability, launches in found.items():
        limits = LIMITS[capability]
        known = [each for each in launches if each.digest in needs]
        good = [needs[each.digest] for each in known if fits(needs[each.digest], limits)]
        numbers = (
            *(len({each.function for each in launches}), len(launches), len(known)),
            *(len(good), len(known) - len(good)),
        )
        cells = " | ".join(f"{number:,}" for number in numbers)
        shared = max((each.shared_bytes for each in good), default=0)
        registers = max((each.registers for each in good), default=0)
        lines.append(
            f"| {capability / 10:.1f} | {limits.cards} | {cells} | {shared:,} B | {registers} |"
        )
    return "\n".join(lines)


def chosen_for(capabilities: Iterable[int]) -> dict[int, list[Launch]]:
    """{capability: what the labs launch}."""
    return {
        capability: [*chosen.thread_kernels(capability), *chosen.launches(capability)]
        for capability in capabilities
    }


def to_compile(
    found: Mapping[int, list[Launch]], kept: Mapping[str, Needs], brief: bool, again: int
) -> list[Launch]:
    """What is not known yet (if brief, the largest of each kernel), and some of what is known."""
    new = [
        launch
        for launches in found.values()
        for launch in (largest(launches) if brief else launches)
        if launch.digest not in kept
    ]
    known = [each for launches in found.values() for each in launches if each.digest in kept]
    step = max(1, len(known) // again) if again else len(known) + 1
    return sorted(new, key=lambda each: each.digest) + known[step // 2 :: step]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--capability", type=int, nargs="+", default=list(LIMITS), choices=LIMITS)
    parser.add_argument("--brief", action="store_true", help="the largest of each kernel alone")
    parser.add_argument("--again", type=int, default=0, help="how many known ones to compile anew")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--raw", type=Path, default=RAW)
    options = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    started = time.monotonic()
    found, kept = chosen_for(options.capability), read(options.raw)
    launches = to_compile(found, kept, options.brief, options.again)
    print(f"{sum(map(len, found.values())):,} launches, {len(launches):,} to compile", flush=True)
    changed = []
    names = {launch.digest: launch.name for launch in launches}
    for digest, needs in compile_all(launches, started + options.limit):
        print(f"{time.monotonic() - started:6.1f} s", names[digest], tuple(needs), flush=True)
        if kept.get(digest, needs) != needs:
            changed.append(f"{digest}: {kept[digest]} is now {needs}")
        kept[digest] = needs
    used_now = {each.digest for launches in found.values() for each in launches}
    whole = set(options.capability) == set(LIMITS)
    kept = {digest: needs for digest, needs in kept.items() if digest in used_now or not whole}
    wrong = changed + [
        f"capability {capability}: {problem}"
        for capability, launches in found.items()
        for problem in problems(launches, kept, LIMITS[capability])
    ]
    everywhere = [
        each for launches in found.values() for each in launches if isinstance(each, chosen.Launch)
    ]
    if whole:
        wrong += [f"{name}: nothing launches it here" for name in chosen.untried(everywhere)]
    if options.output:
        write(options.raw, kept)
        made = "Made by `python benchmarks/cards.py --output benchmarks/cards.md`."
        options.output.write_text(f"{made}\n\n{table(found, kept)}\n", encoding="utf-8")
    print(table(found, kept), *wrong, f"{time.monotonic() - started:.0f} s", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
