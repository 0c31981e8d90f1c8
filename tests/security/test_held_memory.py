"""What ranks hold, as the grader measures it from outside: a lie does not help."""

import pytest

from grading.jail import choice
from grading.jail.sandbox import NoJail
from grading.worker.fork_server import ForkServer
from grading.worker.remote import Remote
from grading.worker.session import Session

pytestmark = pytest.mark.slow

UNIT = 4 << 20
SETUP = "import torch\nfrom nogpu import ranks\n"
CELL = """
KEPT = []

def gathered(dist):
    full = torch.empty(1 << 19, dtype=torch.float64)
    dist.all_gather_into_tensor(full, torch.ones(1 << 18, dtype=torch.float64))
    return full

def releases(dist):
    for _ in range(8):
        gathered(dist).untyped_storage().resize_(0)
    dist.barrier()

def keeps(dist):
    for _ in range(8):
        KEPT.append(gathered(dist))
    dist.barrier()

def lies(dist):
    dist._recorder.counts_live = False  # its own report says that it holds nothing
    dist._recorder.total = 0
    keeps(dist)

def gives_to_a_child(dist):
    import os, time
    for _ in range(8):
        full = gathered(dist)
        if not os.fork():
            full += 1  # pages of its own
            time.sleep(30)
            os._exit(0)
        del full
    time.sleep(0.5)
    dist.barrier()

def writes_a_file(dist):
    import tempfile
    full = gathered(dist)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(full.numpy().tobytes())
    except OSError:
        return "refused"
"""
BALLAST = """
BALLAST = [torch.ones(1 << 19, dtype=torch.float64) for _ in range(8)]

def frees_something_else(dist):
    for _ in range(8):
        KEPT.append(gathered(dist))
        BALLAST.pop()
    dist.barrier()
"""


@pytest.fixture(scope="module", params=["none", "sandbox"])
def run(request):
    """most(name): the most units of 4 MiB that rank 0 held in this function of the cell."""
    sandboxes = [jail for jail in choice.SANDBOXES if jail.problem() is None]
    if request.param == "sandbox" and not sandboxes:
        pytest.skip("there is no sandbox here")
    jail = NoJail() if request.param == "none" else sandboxes[0]
    fork_server = ForkServer("nogpu.ranks.remote", jail=jail)
    sessions = []

    def run(name, **options):
        session = Session(fork_server, [("setup", SETUP), ("f", CELL + BALLAST)])
        session.allow(60)
        sessions.append(session)
        remote = Remote(session, name, CELL)
        return remote.count_remotely("ranks", world_size=2, **settings(options))

    yield run
    for session in sessions:
        session.close()
    fork_server.close()


def settings(options):
    given = {"seed": None, "only": None, "alpha_s": 1e-5, "beta_s_per_byte": 1e-10}
    more = {"flops_per_s": None, "live_bytes": True, "held": True, "timeout_s": 60.0}
    return given | more | options


def most(result):
    return max(result.trace.held_bytes[0]) / UNIT


def test_what_is_kept_is_seen_and_what_is_released_is_gone(run):
    ballast = 8  # the cell's own, which counts, too
    assert most(run("releases")) < ballast + 4
    assert most(run("keeps")) > ballast + 7.5


@pytest.mark.parametrize("name", ["lies", "frees_something_else"])
def test_a_lie_does_not_help(run, name):
    few, many = (most(run(which)) for which in ("releases", name))
    assert many > (7.5 if name == "frees_something_else" else few + 5)


def test_a_child_and_a_file_are_no_place_to_hide(run):
    assert most(run("gives_to_a_child")) > 8 + 7.5
    assert run("writes_a_file").returns == ["refused"] * 2


def test_nothing_is_measured_unless_it_is_asked_for(run):
    assert run("releases", held=False).trace.held_bytes == [[], []]
