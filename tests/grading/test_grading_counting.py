"""Kernels in the grader: counted from their text, with the same verdicts as in a notebook."""

import contextlib

import pytest

from common.notebook.kernel_text import text_of
from grading import score
from grading.jail.sandbox import NoJail
from grading.source.holes import Answer
from grading.source.labs import parse
from grading.worker.fork_server import ForkServer
from tests.in_one_process import score_together

LAB = parse(
    """\
# %% tags=["setup"]
import numpy as np

from nogpu import simt
from common.checks import agree
from nogpu import cuda

STEP = 2
rng = np.random.default_rng()

# %% [markdown]
# ### Exercise 1.1 · twice

# %% tags=["hole"]
@cuda.jit(device=True)
def twice(x):
    # BEGIN SOLUTION
    return STEP * x
    # END SOLUTION

# %% tags=["driver"]
@cuda.jit
def doubled(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = twice(x[i])

# %% tags=["check"]
x = np.arange(5.0)
simt.count(doubled, 1, 32, x)
agree(x, np.array([0.0, 2, 4, 6, 8]), "doubled(x)")

# %% [markdown]
# ### Exercise 1.2 · add

# %% tags=["hole"]
@cuda.jit
def add(x, y, out):
    # BEGIN SOLUTION
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + twice(y[i])
    # END SOLUTION

# %% tags=["check"] limit_s=60
x, y = rng.standard_normal((2, 100)).astype(np.float32)
out, want = np.empty_like(x), x + 2 * y
report = simt.count(add, 4, 32, x, y, out)
agree(out, want, "add", rtol=1e-6)
agree(report.global_loads.sectors, 26, "sectors that add loads")
assert not report.races, report.races[0]
""",
    "98_kernels",
)
SOLUTION = {name: Answer(text) for name, text in LAB.solution.items()}
START = "@cuda.jit\ndef add(x, y, out):\n    i = cuda.grid(1)\n"


@pytest.fixture(scope="module")
def fork_server():
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.mark.slow
def test_the_solution_scores_everything_both_ways(fork_server):
    assert [result.status for result in score.score(LAB, SOLUTION, fork_server)] == [
        "passed",
        "passed",
    ]
    assert not any(score_together(LAB, SOLUTION, fork_server, ["twice", "add"]).values())


@pytest.mark.parametrize(
    "text, status, says",
    [
        (
            START + "    out[i] = x[i] + twice(y[i])",
            "failed",
            "reaches x[100], outside of its shape",
        ),
        (
            START + "    if i < out.size:\n        out[i] = x[i] + twice(y[99 - i])",
            "failed",
            "differ",
        ),
        (
            START + "    if i < out.size:\n        out[i] = x[i] + x[i] - x[i] + twice(y[i])",
            "failed",
            "gave 52, want 26",
        ),
        (
            START + "    while True:\n        i += 1",
            "failed",
            "does it never end?",
        ),
        (START + "    open('/etc/passwd')", "failed", "open"),
        (
            "import os\nos.environ['A'] = '1'\n"
            + START
            + "    if i < out.size:\n        out[i] = x[i] + twice(y[i])",
            "passed",
            "",
        ),
        (
            "import os\n" + START + "    if i < os.environ:\n        out[i] = x[i]",
            "failed",
            "os",
        ),
        ("def add(x, y, out):\n    out[:] = x + 2 * y", "failed", "add"),
    ],
)
def test_a_kernel_gets_its_points_or_its_reason(fork_server, text, status, says):
    results = score.score(LAB, SOLUTION | {"add": Answer(text)}, fork_server)
    assert results[0].status == "passed"
    assert (results[1].status, results[1].points) == (status, int(status == "passed")), results[1]
    assert says in results[1].message.lower(), results[1]


def test_patched_counters_change_nothing(fork_server):
    forger = (
        "from nogpu.simt import report\nreport.Report.as_dict = lambda self: {}\n"
        "import nogpu.simt\n"
        "nogpu.simt.count = lambda *a, **k: None\nfrom nogpu import cuda\n"
        "@cuda.jit(device=True)\ndef twice(x):\n    return STEP * x"
    )
    results = score.score(LAB, SOLUTION | {"twice": Answer(forger)}, fork_server)
    assert results[1].status == "passed", results[1]


def test_a_kernel_s_text_has_what_it_needs_of_other_cells_and_no_more():
    cells = (
        "A = 3\nB = (1, 2)\nimport math\nnp.random.seed(3)",
        "G = 2 ** A - 1\nH = open(1)",
        "@cuda.jit\ndef f(x): pass\nD = 4",
        "A = 5; print(A)\n\n@cuda.jit\ndef g(x): f(x + A)\ng[1, 1](G)",
        "def h(: broken",
        None,
        "def j(x): pass",
    )
    assert (
        text_of(cells, "g") == "A = 5\n\n@cuda.jit\ndef g(x): f(x + A)\n\n\n"
        "# From another cell:\n@cuda.jit\ndef f(x): pass\n"
    )
    assert text_of(cells, "k") is None


COMPILED = parse(
    """\
# %% tags=["setup"]
import torch
import triton
import triton.language as tl

from nogpu import tiles
from common.checks import agree

# %% [markdown]
# ### Exercise 1.1 · copied

# %% tags=["hole"]
@triton.jit
def copied(x, out, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))
    # END SOLUTION

# %% tags=["check"] limit_s=60
x, out = torch.arange(513.0), torch.zeros(512)
for view, requests in ((x[:-1], 8), (x[1:], 16)):
    report = tiles.count(copied, (2,), view, out, BLOCK=256)
    agree(out, view, "copied")
    agree(report.compiled.loads.requests, requests, "requests of the compiled kernel's warps")
    agree(report.compiled.loads.requests, requests, "the same, asked again")
""",
    "97_compiled",
)


def test_the_grader_counts_what_compiled_kernels_request(fork_server):
    solution = {name: Answer(text) for name, text in COMPILED.solution.items()}
    [result] = score.score(COMPILED, solution, fork_server)
    assert (result.status, result.message) == ("passed", "")


SUMS = parse(
    """\
# %% tags=["setup"]
import torch
import triton
import triton.language as tl

from common.hardware import device; from nogpu import tiles
from common.checks import agree

where = "cuda" if device.has_gpu() else "cpu"

# %% [markdown]
# ### Exercise 1.1 · sums

# %% tags=["hole"]
@triton.jit
def sums(x, out, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.zeros((BLOCK,), tl.float32) + tl.load(x + i)))
    # END SOLUTION

# %% tags=["check"] limit_s=60
x, out = torch.arange(256.0), torch.zeros(1)
tiles.count(sums, (1,), x, out, BLOCK=256)
agree(out, x.sum().reshape(1), "sums")
""",
    "96_sums",
)


class WithGpu(NoJail):
    """Where workers believe that there is a GPU, for which Triton would compile."""

    def command(self, command):
        believe = "from common.hardware import device; device.has_gpu = lambda: True; "
        start = "from grading.worker import process; process.main()"
        python, _, _, *arguments = command
        return [python, "-c", believe + start, *arguments]

    def environment(self):
        return {key: text for key, text in super().environment().items() if "TRITON" not in key}


@pytest.mark.slow
def test_the_grader_counts_kernels_where_there_is_a_gpu():
    solution = {name: Answer(text) for name, text in SUMS.solution.items()}
    with contextlib.closing(ForkServer("triton.language", jail=WithGpu())) as fork_server:
        [result] = score.score(SUMS, solution, fork_server)
    assert (result.status, result.message) == ("passed", "")
