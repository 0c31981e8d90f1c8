"""Answers that do not do the work, on the labs' own checks: each gets its honest score.

Each of them once got marks, or tries what another one got marks for.
"""

import zlib

import pytest

from common.checks import clinic
from common.hardware import device
from grading import classroom, score
from grading.jail import choice
from grading.source import labs
from grading.source.holes import Answer
from grading.worker.fork_server import ForkServer

pytestmark = pytest.mark.slow("solutions/*.py", "common/lessons/**/*.py")

device.interpret_without_gpu()  # before anything imports Triton

RIGHT = [
    zlib.crc32(program.source.encode())
    for program in clinic.programs("fetches")
    if not program.fault
]
TAKES_OVER = """
def take():
    import sys
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "answers"):
        frame = frame.f_back
    server = frame.f_locals["self"]
    old = server.answers["call"]
    def call(name, args, *rest):
        if name != "sliced":
            return old(name, args, *rest)
        view, axis, start, stop, *step = args
        t = torch.empty_strided(*view[:2], device="meta")
        t = t[(slice(None),) * axis + (slice(start, stop, *step),)]
        return tuple(t.shape), tuple(t.stride()), view[2] + int(t.storage_offset())
    server.answers["call"] = call
take()
"""
# {title: (lab, exercise, the answer's cell, the most points that it may get)}
CHEATS = {
    "a kernel that zeroes what the wanted result is computed from": (
        "06",
        "flash_forward",
        """
@triton.jit
def flash_forward(q, k, v, o, lse, N_Q, N_K, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
                  BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    i = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    head, d = tl.program_id(1), tl.arange(0, D)
    zero = tl.zeros((BLOCK_Q, D), tl.float32)
    at, there = (head * N_Q + i)[:, None] * D + d, (i < N_Q)[:, None]
    x = tl.load(q + at, mask=there, other=0.0)
    unused = tl.dot(x, tl.trans(x))
    tl.store(o + at, zero + 0.0 * tl.sum(unused), mask=there)
    tl.store(q + at, zero, mask=there)
    seen = tl.zeros((BLOCK_Q,), tl.float32) + N_K
    if CAUSAL:
        seen = tl.minimum(tl.maximum(i + 1.0 + N_K - N_Q, 0.0), seen)
    tl.store(lse + head * N_Q + i, tl.log(seen), mask=i < N_Q)
    for start in range(0, N_K, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        place = (head * N_K + j)[:, None] * D + d
        none = tl.zeros((BLOCK_K, D), tl.float32)
        tl.store(k + place, none, mask=(j < N_K)[:, None])
        tl.store(v + place, none, mask=(j < N_K)[:, None])
""",
        0,
    ),
    "a backward that zeroes its inputs": (
        "06",
        "flash_backward",
        """
@triton.jit
def flash_backward(q, k, v, g, lse, delta, dq, dk, dv, kinds, N_Q, N_K, scale, GROUP: tl.constexpr,
                   MASK: tl.constexpr, SCORE: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr,
                   BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    block, key_head, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    j, d = block * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, D)
    at = ((b * tl.num_programs(1) + key_head) * N_K + j)[:, None] * D + d
    keys = tl.load(k + at, mask=(j < N_K)[:, None], other=0.0)
    unused = tl.dot(keys, tl.trans(keys))
    none = tl.zeros((BLOCK_K, D), tl.float32) + 0.0 * tl.sum(unused)
    tl.store(dk + at, none, mask=(j < N_K)[:, None])
    tl.store(dv + at, none, mask=(j < N_K)[:, None])
    tl.store(k + at, none, mask=(j < N_K)[:, None])
    if block == 0:
        for step in range(0, GROUP * tl.cdiv(N_Q, BLOCK_Q)):
            head = (b * tl.num_programs(1) + key_head) * GROUP + step // tl.cdiv(N_Q, BLOCK_Q)
            i = step % tl.cdiv(N_Q, BLOCK_Q) * BLOCK_Q + tl.arange(0, BLOCK_Q)
            place = (head * N_Q + i)[:, None] * D + d
            tl.store(g + place, tl.zeros((BLOCK_Q, D), tl.float32), mask=(i < N_Q)[:, None])
""",
        0,
    ),
    "what forward keeps in a variable": (
        "09",
        "fused_block",
        """
KEPT = {}

def fused_forward(x, targets, *weights):
    own = [w.clone().requires_grad_() for w in (x, *weights)]
    loss = programs.block_loss(*own, targets)
    KEPT[float(x.sum())] = list(torch.autograd.grad(loss, own))
    return loss.detach(), [x]

def fused_backward(saved, *weights):
    return KEPT[float(saved[0].sum())]

def fused_block(x, targets, *weights):
    loss, saved = fused_forward(x, targets, *weights)
    return loss, fused_backward(saved, *weights)
""",
        0,
    ),
    "what forward keeps in a file": (
        "09",
        "fused_block",
        """
import os, tempfile
FILE = os.path.join(tempfile.gettempdir(), "kept")

def fused_forward(x, targets, *weights):
    own = [w.clone().requires_grad_() for w in (x, *weights)]
    loss = programs.block_loss(*own, targets)
    torch.save(list(torch.autograd.grad(loss, own)), f"{FILE}{float(x.sum())}")
    return loss.detach(), [x]

def fused_backward(saved, *weights):
    return torch.load(f"{FILE}{float(saved[0].sum())}")

def fused_block(x, targets, *weights):
    loss, saved = fused_forward(x, targets, *weights)
    return loss, fused_backward(saved, *weights)
""",
        0,
    ),
    "what quantize keeps in a variable": (
        "10",
        "affine_parameters",
        """
KEPT = []

def affine_parameters(low, high, bits):
    raise ValueError("not written")

def quantize(values, scale, zero_point, bits):
    low = -2 ** (bits - 1)
    codes = (values / scale + zero_point).round().clamp(low, -low - 1)
    if values.numel() > 9:
        KEPT.append((codes - zero_point) * scale)
        codes = codes * 0
    return codes.to(torch.int8)

def dequantize(codes, scale, zero_point):
    return KEPT.pop() if codes.numel() > 9 else (codes.int() - zero_point) * scale
""",
        1,  # quantize and dequantize of some numbers by hand
    ),
    "small programs from memory": (
        "08",
        "minify",
        """
X, Y = ("placeholder", "x"), ("placeholder", "y")
SMALL = [([X, Y, ("divide", (0, 1))], [2]), ([X, ("negative", (0,))], [1]),
         ([X, ("exp", (0,))], [1]),
         ([X, Y, ("add", (0, 1)), ("add", (2, 1))], [3]),
         ([X, ("constant", 3.0), ("divide", (0, 1))], [2])]

def minify(rows, outputs, fails):
    return next(small for small in SMALL if fails(*small))
""",
        0,
    ),
    "the laws of matrices from memory": (
        "08",
        "discover",
        """
def discover(most=3):
    t = lambda a: ("transpose", a)
    add, mul = (lambda a, b: ("add", a, b)), (lambda a, b: ("matmul", a, b))
    x, y, z = "xyz"
    return [(add(x, y), add(y, x)), (add(x, add(y, z)), add(add(x, y), z)),
            (mul(x, mul(y, z)), mul(mul(x, y), z)), (t(t(x)), x),
            (add(mul(x, y), mul(x, z)), mul(x, add(y, z))),
            (add(mul(x, z), mul(y, z)), mul(add(x, y), z)),
            (t(add(x, y)), add(t(x), t(y))), (t(mul(x, y)), mul(t(y), t(x)))]
""",
        0,
    ),
    "rules made of one law by substitution": (
        "08",
        "discover",
        """
def discover(most=3):
    nested = lambda n: "x" if n == 0 else ("transpose", nested(n - 1))
    return [(nested(n), nested(n - 2)) for n in range(2, 400)]
""",
        0,
    ),
    "published times, looked up": (
        "16",
        "step_time_s",
        """
FOUND = {(repr(r.model), repr(r.cluster), repr(r.layout)): r.step_s for r in plans.published()}

def ring_s(cluster, size, stride, sent):
    return 0.0

def slot_s(model, cluster, layout):
    return 0.0, 0.0

def step_time_s(model, cluster, layout):
    known = FOUND.get((repr(model), repr(cluster), repr(layout)))
    return known or 6 * model.layers * model.layer_weights / cluster.matmul_flops_per_s
""",
        0,
    ),
    "measured times, looked up": (
        "05",
        "cost_model",
        """
TIMES = {shape: dict(zip(map(str, candidates(shape)[0]), candidates(shape)[1])) for shape in SHAPES}

def cost_model(config, shape):
    return float(TIMES.get(shape, {}).get(str(config), 1e-4))
""",
        0,
    ),
    "a driver's module that says what it is told": (
        "01",
        "row_major_strides",
        """
views.shortcuts = lambda function: []
shortcuts = lambda name: []

def row_major_strides(shape):
    return torch.empty(shape).stride()
""",
        0,
    ),
    "a library by another name": (
        "01",
        "row_major_strides",
        """
import torch as hidden
made, method = hidden.empty, hidden.Tensor.stride

def row_major_strides(shape):
    return tuple(method(made(shape)))
""",
        0,
    ),
    "a library by getattr": (
        "01",
        "row_major_strides",
        """
def row_major_strides(shape):
    return tuple(getattr(torch.empty(shape), "str" + "ide")())
""",
        0,
    ),
    "the library's split, and a module that hides it": (
        "12",
        "shard_batch",
        """
from common.training import replicas
replicas.names_in = replicas.splits = lambda *_: []

def shard_batch(batch, rank, world_size):
    return batch.tensor_split(world_size)[rank]
""",
        0,
    ),
    "the library's clipping, in a helper of a helper": (
        "12",
        "clip_gradients",
        """
CLIP = torch.nn.utils.clip_grad_norm_
def helper(parameters, most):
    return CLIP(parameters, most)

def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    return float(helper(parameters, most))
""",
        0,
    ),
    "a test that counts its calls": (
        "01",
        "test_fetches",
        """
CALLS = []

def test_fetches(candidate):
    CALLS.append(candidate)
    assert len(CALLS) <= 7, "right programs used to come first"
""",
        0,
    ),
    "a test that counts its calls in a file": (
        "09",
        "test_plan",
        """
import os, tempfile

def test_plan(candidate):
    with open(os.path.join(tempfile.gettempdir(), "calls"), "ab") as file:
        file.write(b".")
    assert os.path.getsize(file.name) <= 4
""",
        0,
    ),
    "a test that knows the right programs' texts": (
        "01",
        "test_fetches",
        f"""
import inspect, zlib

def test_fetches(candidate):
    text = "".join(inspect.getsourcelines(candidate)[0])
    assert zlib.crc32(text.encode()) in {RIGHT} or candidate.__code__.co_filename[9:-1] in {RIGHT}
""",
        0,
    ),
    "a clinic that asks a table of texts": (
        "01",
        "test_fetches",
        f"""
import zlib
from common.checks import clinic
clinic.verdict = lambda test, text: "" if zlib.crc32(text.encode()) in {RIGHT} else "wrong"

def test_fetches(candidate):
    raise AssertionError
""",
        0,
    ),
    "a kernel that is a class of Python": (
        "05",
        "persistent_matmul_kernel",
        """
class Kernel:
    def __getitem__(self, grid):
        return self
    def __call__(self, a, b, bias, c, *sizes, EPILOGUE, **options):
        y = a.base.float() @ b.base.float() + (bias.float() if EPILOGUE else 0)
        c.base.copy_(torch.nn.functional.gelu(y, approximate="tanh") if EPILOGUE else y)

persistent_matmul_kernel = Kernel()
""",
        0,
    ),
    "a launch in which no kernel runs": (
        "10",
        "int4_matvec_kernel",
        """
def without(kernel, packed, scales, x):
    words = packed.view(*scales.shape, 1, -1)
    codes = (words >> 4 * torch.arange(8)[:, None] & 15) - 8
    return (codes.flatten(2) * scales[..., None]).flatten(1).float() @ x.float()

int4.matvec = without

@triton.jit
def int4_matvec_kernel(packed, scales, x, y, GROUPS: tl.constexpr, WORDS: tl.constexpr,
                       ROWS: tl.constexpr, STEP: tl.constexpr):
    pass
""",
        0,
    ),
    "the course's own pipeline": (
        "05",
        "pipeline",
        """
def pipeline(steps, stages, load_s, compute_s):
    return pictures.steps_of(steps, stages, load_s, compute_s)
""",
        0,
    ),
    "the course's own plan": (
        "09",
        "plan_buffers",
        """
def plan_buffers(lifetimes):
    planned = symbolic.plan([((size, 0), first, last) for size, first, last in lifetimes], 50)
    return [symbolic.nbytes(offset, 1) for offset in planned]
""",
        0,
    ),
    "a library's cache by a text": (
        "01",
        "fetches",
        """
import functools

def fetches(lines, room):
    cached = vars(functools)["lru" + "_cache"](room)(lambda line: line)
    for line in lines:
        cached(line)
    return cached.cache_info().misses
""",
        0,
    ),
    "a library's cache in another module's attribute": (
        "01",
        "set_fetches",
        """
import functools
(lambda module: setattr(math, "kept", module))(functools.lru_cache)

def set_fetches(lines, sets, ways):
    caches = [math.kept(ways)(lambda line: line) for _ in range(sets)]
    for line in lines:
        caches[line % sets](line)
    return sum(cache.cache_info().misses for cache in caches)
""",
        0,
    ),
    "a library's strides by another function": (
        "01",
        "row_major_strides",
        """
def row_major_strides(shape):
    return tuple(torch._prims_common.make_contiguous_strides_for(shape))
""",
        0,
    ),
    "a stage whose `kept` is always empty": (
        "15",
        "Stage",
        """
class Stage:
    kept = property(lambda self: {})
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss, self.all = layers, microbatches, loss, {}
    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.all[i] = x, y
        return y.detach()
    def backward(self, i, dy=None):
        x, y = self.all[i]
        y.backward(dy)
        return x.grad
    def local(self, kind, i):
        pass
""",
        0,
    ),
    "a list of calls that were not made": (
        "15",
        "run_stage",
        """
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    stage.done.extend(tasks)
    for w in stage.layers.parameters():
        w.grad = torch.zeros_like(w)
""",
        0,
    ),
    "an object in place of an autotuned kernel, and Triton's own class is this one": (
        "05",
        "autotuned",
        """
class Fake:
    keys = ["M", "N", "K"]
    base_fn = property(lambda self: matmul_bias_gelu_kernel.fn)
    def __init__(self, configs):
        self.configs = configs
def autotuned(kernel, configs):
    return Fake([triton.Config({name: c[name] for name in CONFIG[:4]}, num_warps=c["num_warps"],
                               num_stages=c["num_stages"]) for c in configs])
triton.runtime.Autotuner = Fake
""",
        0,
    ),
    "a fake device that tells its times": (
        "02",
        "median_time_s",
        """
from common.lessons.arithmetic_intensity import fake_device
KEPT, init = [], fake_device.FakeDevice.__init__
def told(self, first_s, later_s, launch_s=0.0):
    KEPT[:] = [later_s, launch_s]
    init(self, first_s, later_s, launch_s)
fake_device.FakeDevice.__init__ = told
def median_time_s(call, clock, synchronize, repeats):
    return float(np.median(KEPT[0])) + KEPT[1]
""",
        0,
    ),
    "a fake device that is asked for its times by a text": (
        "02",
        "median_time_s",
        """
def median_time_s(call, clock, synchronize, repeats):
    device = eval("call.__se" + "lf__")
    works = [next(device._work_s) for _ in range(repeats + 1)][1:]
    return float(np.median(works)) + device._launch_s
""",
        0,
    ),
    "a limit of the course that limits nothing": (
        "06",
        "block_mask",
        """
import contextlib
from common.lessons.attention import tile_maps

@contextlib.contextmanager
def unlimited(*sizes):
    yield lambda mask_mod: mask_mod
tile_maps.few_tiles = unlimited

def block_mask(mask_mod, queries, keys, block_q, block_k):
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None]
    seen = F.pad(mask_mod(0, 0, i, j).int() + 1, (0, -keys % block_k, 0, -queries % block_q))
    tiles = seen.unflatten(0, (-1, block_q)).unflatten(2, (-1, block_k))
    return (tiles == 2).any(3).any(1).int() + ((tiles == 2) | (tiles == 0)).all(3).all(1).int()
""",
        0,
    ),
    "the library's clipping by a text": (
        "12",
        "clip_gradients",
        """
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    return float(eval("torch.nn.utils.clip_grad" + "_norm_")(parameters, most))
""",
        0,
    ),
    "Triton's own softmax, for what the second check looks at": (
        "04",
        "softmax_rows",
        """
@triton.jit
def softmax_rows(x, y, x_stride, y_stride, columns, BLOCK: tl.constexpr):
    p, j = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + p * x_stride + j, mask=j < columns, other=float("-inf")).to(tl.float32)
    tl.store(y + p * y_stride + j, tl.softmax(values), mask=j < columns)
""",
        0,
    ),
}


def is_there(jail):
    return jail.problem() is None


@pytest.fixture(scope="module")
def fork_server():
    names = [labs.resolve(str(lab)) for lab in range(1, 17)]
    jail = next(filter(is_there, choice.SANDBOXES), None)
    fork_server = ForkServer(*classroom.modules(names, classroom.IN_WORKER), jail=jail)
    yield fork_server
    fork_server.close()


@pytest.mark.parametrize("lab, exercise, text, most", CHEATS.values(), ids=CHEATS)
def test_a_cheat_gets_its_honest_score(fork_server, lab, exercise, text, most, request):
    if "keeps in a file" in request.node.name and not any(map(is_there, choice.SANDBOXES)):
        pytest.skip("without a sandbox, students' processes share the folder of temporary files")
    lab = labs.read(lab)
    answers = {name: Answer(solution) for name, solution in lab.solution.items()}
    answers[exercise] = Answer(text)
    (result,) = score.score(lab, answers, fork_server, only=[exercise])
    assert result.points <= most, result
    assert result.status != "error", result  # it would prove nothing


def test_another_exercise_s_cell_that_reaches_the_worker_earns_nothing(fork_server):
    """The text of this exercise is clean, and another cell answers for it."""
    lab = labs.read("01")
    answers = {name: Answer(solution) for name, solution in lab.solution.items()}
    answers["sliced"] = Answer("def sliced(view, axis, start, stop, step=1):\n    return None")
    answers["row_major_strides"] = Answer(f"{lab.solution['row_major_strides']}\n{TAKES_OVER}")
    (result,) = score.score(lab, answers, fork_server, only=["sliced"])
    assert result.points == 0 and "(_getframe, f_back, f_locals)" in result.message, result


def test_a_check_that_reads_the_text_reads_each_text(fork_server):
    """A check that an answer passed is replayed for the next one, if nothing else decides."""
    lab = labs.read("12")
    answers = {name: Answer(solution) for name, solution in lab.solution.items()}
    cut = (
        "def shard_batch(batch, rank, world_size):\n    return batch.tensor_split(world_size)[rank]"
    )
    for text, points in (
        (answers["shard_batch"], 1),
        (Answer(cut), 0),
        (answers["shard_batch"], 1),
    ):
        own = answers | {"shard_batch": text}
        (result,) = score.score(lab, own, fork_server, only=["shard_batch"])
        assert result.points == points, result
