"""What the labs launch on a GPU of some compute capability, found without one.

The labs' own functions run on tensors that have a shape and no numbers, on a machine that is said
to have a GPU. Triton hands over each kernel that it would compile, and nothing is launched.
"""

# ruff: noqa: ANN401

import ast
import contextlib
import functools
import hashlib
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import torch

from benchmarks import sweeps
from benchmarks.solved import solved
from common.hardware import device
from common.hardware.gpu_limits import LIMITS
from nogpu.kernels import linecache_text

Names = dict[str, Any]
WIDTHS = (1, 33, 100, 257, 1000, 1001, 3000, 10_000, 12_000, 40_002, 50_257)
PRODUCTS = (  # M, N, K: those of the labs' text, besides the sweep's
    *((4096, 4096, 4096), (8192, 8192, 8192), (4000, 4096, 4096), (8192, 2048, 4096)),
    *((4096, 11008, 4096), (1000, 5000, 3000), (128, 8192, 8192), (1024, 1024, 1024)),
    *((1001, 2003, 4095), (1, 1, 1), (17, 8192, 8192), (512, 512, 16384)),
)


class Launch(NamedTuple):
    """A kernel that a lab launches, as Triton compiles it."""

    lab: str
    kernel: Any
    source: Any  # Triton's ASTSource
    options: Any
    optional: bool  # the lab tries several and leaves out what does not fit

    @property
    def name(self) -> str:
        """What it is, in a line."""
        constants = (f"{name} {value}" for name, value in _constants(self).items())
        options = f"{self.options.num_warps} warps", f"{self.options.num_stages} stages"
        return f"lab {self.lab}, {self.kernel.__name__}: " + ", ".join((*constants, *options))

    @property
    def function(self) -> str:
        """The kernel's name."""
        return self.kernel.__name__

    @property
    def digest(self) -> str:
        """It changes with the kernel, its arguments, its options and the capability."""
        whole = self.source.hash() + self.options.hash()
        return hashlib.sha256(whole.encode()).hexdigest()[:10]

    @property
    def size(self) -> int:
        """How much it asks for, roughly: the product of its block's sides, times the stages."""
        product = self.options.num_stages
        for name, value in _constants(self).items():
            product *= value if name.startswith("BLOCK") or name in ("ROWS", "D", "MORE") else 1
        return product


def _constants(launch: Launch) -> dict[str, int]:
    names = launch.kernel.arg_names
    found = {names[place[0]]: value for place, value in launch.source.constants.items()}
    return {name: value for name, value in found.items() if name.isupper() and _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Threads(NamedTuple):
    """A kernel of lab 03, for numba.cuda. arrays: the type of each parameter, as Numba has it."""

    function: str
    arrays: tuple[str, ...]
    size: int  # threads of a block
    text: str  # of all kernels of the lab
    capability: int
    optional: bool = False

    @property
    def name(self) -> str:
        """What it is, in a line."""
        return f"lab 03, {self.function}: {self.size} threads"

    @property
    def digest(self) -> str:
        """It changes with the lab's kernels and the capability."""
        whole = f"{self.function} {self.arrays} {self.size} {self.text} {self.capability}"
        return hashlib.sha256(whole.encode()).hexdigest()[:10]


LINES = {  # lab 03's kernels of vectors: {name: (how many, threads)}
    "vector_add": (3, 128), "window_average": (2, 128), "window_average_naive": (2, 128),
    "window_average_someones": (2, 128), "block_sum": (2, 256), "block_sum_neighbours": (2, 256),
    "in_step": (2, 32),
}  # fmt: skip
MATRICES = {  # and of matrices
    "matrix_add_doubled": (3, 256), "transpose": (2, 1024), "transpose_naive": (2, 1024),
    "matmul_naive": (3, 256), "matmul_swapped": (3, 256), "matmul_tiled": (3, 256),
    "matmul_column_tiled": (3, 512), "matmul_register_tiled": (3, 256),
}  # fmt: skip


def thread_kernels(capability: int) -> list[Threads]:
    """The kernels of lab 03."""
    from grading.source import holes, labs

    text = "\n".join(
        holes.solved(cell.source)
        for cell in labs.read("03").cells
        if cell.kind == "code" and "cuda.jit" in cell.source
    )
    int32, float32 = "int32[::1]", "float32[::1]"
    kernels = {name: ((float32,) * count, size) for name, (count, size) in LINES.items()}
    kernels |= {
        name: (("float32[:, ::1]",) * count, size) for name, (count, size) in MATRICES.items()
    }
    kernels["histogram"] = (int32, int32), 256
    kernels["follow"] = (int32, int32, "int64"), 64
    return [Threads(name, *kernel, text, capability) for name, kernel in kernels.items()]


class OnCard(torch.Tensor):
    """A tensor without numbers that says that it is on a GPU."""

    is_cuda: Any = property(lambda self: True)  # pyrefly: ignore


def card(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of this shape on the GPU that does not exist."""
    return torch.empty(*shape, dtype=dtype, device="meta").as_subclass(OnCard)


class _Driver:
    """What Triton asks a driver for, before it compiles."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> Any:
        return self.target.arch

    def get_current_stream(self, device_: int) -> int:
        return 0


MULTIPROCESSORS = {75: 40, 80: 108, 86: 82, 89: 58, 90: 132, 100: 148, 120: 170}


@contextlib.contextmanager
def pretended(capability: int) -> Iterator[None]:
    """In it, this machine seems to have a GPU of this capability."""
    from triton.runtime.driver import driver

    pretended_driver: Any = _Driver(capability)
    driver.set_active(pretended_driver)
    with (
        mock.patch.object(device, "has_gpu", lambda: True),
        mock.patch.object(device, "compute_capability", lambda: divmod(capability, 10)),
        mock.patch.object(device, "multiprocessors", lambda: MULTIPROCESSORS[capability]),
        mock.patch.object(device, "name", lambda: LIMITS[capability].cards),
    ):
        yield


def launches(capability: int) -> list[Launch]:
    """Each kernel that the labs launch on such a GPU, once, in all configurations."""
    from triton.runtime.jit import JITFunction

    found: dict[str, Launch] = {}
    state = {"lab": "", "optional": False}

    def record(
        kernel: Any, key: Any, signature: Any, device_: Any, constants: Any, options: Any,
        attrs: Any, warmup: Any,
    ) -> None:  # fmt: skip
        source = kernel.ASTSource(kernel, signature, constants, attrs)
        launch = Launch(state["lab"], kernel, source, options, state["optional"])
        found.setdefault(launch.digest, launch)

    def all_ways(key: Any, ways: Mapping[Any, Any]) -> Any:
        state["optional"] = True
        results = [call() for call in ways.values()]
        state["optional"] = False
        return results[0]

    from common.lessons.triton_matmul import any_shape_matmul

    with (
        pretended(capability),
        mock.patch.object(JITFunction, "_do_compile", record),
        mock.patch.object(any_shape_matmul, "fastest", all_ways),
    ):
        for lab, calls in LABS.items():
            state["lab"] = lab
            names = _names(lab)
            if "on_hopper" in names:
                names["on_hopper"].cache_clear()  # it was another GPU
            for optional, call in calls(names):
                state["optional"] = optional
                call()
    return list(found.values())


@functools.cache
def _names(lab: str) -> Names:
    """All that a lab's cells define when they are solved, with the kernels of its demo cells."""
    names = solved(lab)
    for function in jitted(lab):
        if function.name not in names:
            text, file = ast.unparse(function), f"<lab {lab}, {function.name}>"
            linecache_text.remember(file, text)
            exec(compile(text, file, "exec"), names)  # noqa: S102 - the course's own lab
    return names


def jitted(lab: str) -> list[ast.FunctionDef]:
    """The Triton kernels, and the functions that they call, in a lab's code."""
    from grading.source import holes, labs

    return [
        node
        for cell in labs.read(lab).cells
        if cell.kind == "code"
        for node in ast.parse(_plain(holes.solved(cell.source))).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each) in ("triton.jit", "gluon.jit") for each in node.decorator_list)
    ]


def untried(launches: Iterable[Launch]) -> list[str]:
    """The labs' kernels that are none of these, and that none of these calls."""
    names = {launch.function for launch in launches}
    missing = []
    for lab in LABS:
        texts = {node.name: ast.unparse(node) for node in jitted(lab)}
        reached = [name for name in texts if name in names]
        for name in reached:
            called = [other for other in texts if f"{other}(" in texts[name]]
            called += [
                other for other in texts if f"({other}," in texts[name]
            ]  # of warp_specialize
            reached += [other for other in called if other not in reached]
        missing += [f"lab {lab}, {name}" for name in texts if name not in reached]
    return missing


def _plain(text: str) -> str:
    """A cell's text without Jupyter's own lines."""
    return "\n".join("" if line.startswith(("%", "!")) else line for line in text.splitlines())


Calls = Iterator[tuple[bool, Any]]  # (whether the lab leaves it out if it does not fit, a call)


def softmax(names: Names) -> Calls:
    """Lab 04."""
    dtypes = torch.float32, torch.bfloat16, torch.float16
    swept = [(width, sweeps.DTYPES[short]) for short, width in sweeps.softmax_widths()]
    powers = [2**i for i in range(18)]
    for width, dtype in (*itertools.product((*powers, *WIDTHS), dtypes), *swept):
        x = card(64, width, dtype=dtype)
        for function in ("fused_softmax", "softmax_in_two_reads", "fast_softmax"):
            yield False, functools.partial(names[function], x)
        saved = types.SimpleNamespace(saved_tensors=(x,))
        if width <= 20_000:
            yield False, functools.partial(names["Softmax"].backward, saved, x)
    x = card(64, 4096)
    sizes = x, x, 4096, 4096, 4096
    for warps in (1, 4, 16, 32):
        rows = card(16, 8192)
        call = functools.partial(names["softmax_rows"][(16,)], rows, rows, 8192, 8192, 8192)
        yield False, functools.partial(call, BLOCK=8192, num_warps=warps)
    yield False, functools.partial(names["softmax_three_reads"][(64,)], *sizes, BLOCK=1024)
    columns = names["softmax_columns"][(4096,)]
    yield False, functools.partial(columns, x, x, 4096, 4096, BLOCK=4096, num_warps=16)
    scaled = names["softmax_masked_scaled"][(64,)]
    yield False, functools.partial(scaled, x, x, 32, 4096, 0.5, BLOCK=4096)
    target, loss = card(64, dtype=torch.int64), card(64)
    entropy = names["cross_entropy"][(64,)]
    yield False, functools.partial(entropy, x, target, loss, x, 4096, BLOCK=1024)
    yield False, functools.partial(names["differences"][(4,)], loss, loss, 64, BLOCK=16)
    for name in "row_sums", "row_sums_plain":
        yield False, functools.partial(names[name][(4,)], x, loss, 3, 1001, BLOCK=1024)
    yield False, functools.partial(names["double"][(4,)], loss, loss, BLOCK=32)


def matmul(names: Names) -> Calls:
    """Lab 05."""
    from common.lessons.triton_matmul.pictures import grid, sizes

    halves = torch.bfloat16, torch.float16
    for (m, n, k), half in (
        *itertools.product(PRODUCTS, halves),
        *((shape, torch.bfloat16) for shape in sweeps.matmul_shapes()),
    ):
        a, b, bias = (card(*size, dtype=half) for size in ((m, k), (k, n), (n,)))
        yield False, functools.partial(names["matmul"], a, b)
        yield False, functools.partial(names["matmul_bias_gelu"], a, b, bias)
        any_shape = names["any_shape_matmul"]
        large = any_shape.shared_bytes() >= any_shape.SHARED_BYTES
        if large and m % 8 == n % 8 == k % 8 == 0:
            wide = names["matmul_in_large_tiles"]  # by the kernel of exercise 10.2
            yield False, functools.partial(wide, a, b, bias, launch=names["launch_wide"])
    half = torch.bfloat16
    a, b, c = (card(*size, dtype=half) for size in ((16384, 128), (128, 512), (16384, 512)))
    shape = 16384, 512, 128
    ranked = sorted(
        names["candidates"](shape)[0], key=lambda each: names["cost_model"](each, shape)
    )
    for config in ranked[:5]:
        kernel = names["matmul_bias_gelu_kernel"][grid(c, config["BLOCK_M"], config["BLOCK_N"])]
        yield True, functools.partial(kernel, a, b, c, c, *sizes(a, b, c), EPILOGUE=False, **config)
    yield from other_products(names)


def other_products(names: Names) -> Calls:
    """The kernels of lab 05 that `matmul` does not choose."""
    from common.lessons.triton_matmul import any_shape_matmul
    from common.lessons.triton_matmul.pictures import blocks, grid, sizes

    half = torch.bfloat16
    a, b, c = (card(*size, dtype=half) for size in ((128, 64), (64, 128), (128, 128)))
    kernel = names["matmul_kernel"][(4,)]
    yield False, functools.partial(kernel, a, b, c, *sizes(a, b, c), **blocks(64, 64, 32))
    x, out = card(64, 64, dtype=half), card(64, 64)
    for precision in ("ieee", "tf32"):
        one = functools.partial(names["one_tile_kernel"][(1,)], SIZE=64, PRECISION=precision)
        yield False, functools.partial(one, x, x, out)
        yield False, functools.partial(one, out, out, out)
    x, out = card(256, 8192), card(8192, 8192)
    l1 = names["l1_kernel"][64, 64]
    yield False, functools.partial(l1, x, x, out, 8192, 8192, 256, BLOCK=128, num_warps=8)
    a, b, c = card(512, 16384, dtype=half), card(512, 16384, dtype=half).T, card(512, 512)
    stages = min(5, any_shape_matmul.shared_bytes() >> 15)
    for split in (1, 2, 4, 8, 16):
        options = blocks(64, 64, 128) | {"SPLIT": split, "num_stages": stages}
        kernel = names["split_k_kernel"][(*grid(c, 64, 64), split)]
        yield False, functools.partial(kernel, a, b, c, *sizes(a, b, c), **options)


def attention(names: Names) -> Calls:
    """Lab 06: the kernels in the tiles that benchmarks/attention.py tries, and the lab's own."""
    from benchmarks import attention as tried

    mods = {"GROUP": 1, "MASK": tried.causal, "SCORE": tried.unchanged}
    for d, dtype in itertools.product((16, 64, 128), (torch.bfloat16, torch.float32)):
        q = card(1, 8, 1024, d, dtype=dtype)
        lse, kinds = card(1, 8, 1024), card(64, 64, dtype=torch.int32)
        sizes = 1024, 1024, 0.125
        flat = (q[0], q[0], q[0], q[0], lse[0])
        own = [(16, 16, 4, 3), (64, 64, 4, 3)]
        hopper = device.compute_capability()[0] == 9  # benchmarks/attention.py asks for one
        more = tried.TILES if hopper and dtype == torch.bfloat16 else []
        for block_q, block_k, warps, stages in (*own, *more):
            how = {"D": d, "BLOCK_Q": block_q, "BLOCK_K": block_k}
            how |= {"num_warps": warps, "num_stages": stages}
            tries = (block_q, block_k) != (16, 16)
            flash = names["flash_forward"][(16, 8)]
            for causal in (False, True):
                yield tries, functools.partial(flash, *flat, *sizes, CAUSAL=causal, **how)
            given = mods | how
            forward = names["flex_forward"][(16, 8, 1)]
            yield tries, functools.partial(forward, q, q, q, q, lse, kinds, *sizes, **given)
            backward = names["flash_backward"][(16, 8, 1)]
            saved = q, q, q, q, lse, lse, card(*q.shape), q, q, kinds
            yield tries, functools.partial(backward, *saved, *sizes, **given, SLOPE=tried.one)
        parts, m = card(4, 8, d), card(4, 8)
        for group, block in itertools.product((1, 8), (16, 32)):
            how = {"GROUP": group, "D": d, "BLOCK": block}
            given = flat[0], flat[0], flat[0], m, m, parts, 500, 125, 0.125
            yield False, functools.partial(names["decode_split"][(4, 2)], *given, **how)
            paged = *given[:3], card(32, dtype=torch.int32), *given[3:]
            yield False, functools.partial(names["decode_paged"][(4, 2)], *paged, **how)


def compiler(names: Names) -> Calls:
    """Lab 08: the kernels that its solution emits for chains of element-wise operators."""
    from common.lessons.compiler import emitted

    for count in (1, 2, 3, 4, 6, 8, 12):
        rows = emitted.elementwise_chain(count)
        arrays = {"x": card(64, 512), "b": card(512), "s": card(64, 1)}
        group = list(range(4, len(rows)))
        shapes = emitted.shapes_of(rows, arrays)
        text = names["fuse_elementwise"](rows, group, shapes)
        outside = sorted({j for i in group for j in rows[i][1]} - set(group))
        reads = [arrays[rows[j][1]] for j in outside if rows[j][0] == "placeholder"]
        yield False, functools.partial(emitted.launch, text, reads, card(64, 512))


def quantization(names: Names) -> Calls:
    """Lab 10: the student's kernel, and ours on tensor cores."""
    from common.lessons.quantization import int4

    for rows, columns, group in itertools.chain(
        itertools.product((8192,), (8192,), (32, 64, 128, 256, 512)),
        ((rows, columns, 128) for rows, columns in sweeps.int4_shapes()),
    ):
        packed = card(rows, columns // 8, dtype=torch.int32)
        scales, x = (card(*s, dtype=torch.bfloat16) for s in ((rows, columns // group), (columns,)))
        y, kernel = card(rows), names["int4_matvec_kernel"]
        yield False, functools.partial(int4.launch, kernel, packed, scales, x, y)
        if group == 128:
            words = card(8, columns // 128, rows // 16, 16, 8, dtype=torch.int32)
            yield False, functools.partial(int4.launch_tiles, words, scales, x, y)


LABS = {
    "04": softmax, "05": matmul, "06": attention, "08": compiler, "10": quantization,
}  # fmt: skip
