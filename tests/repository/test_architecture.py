"""Each row of "Where to change what" leads to what it promises, on the page of each job."""

import re
from pathlib import Path

import pytest

from common.paths import ROOT
from grading.source import labs

PAGES = "CONTRIBUTING.md", "docs/architecture.md", "nogpu/CONTRIBUTING.md"
TABLE = re.compile(r"^\| to change \| open \|\n\| --- \| --- \|\n((?:\|.*\n)+)", re.M)
ROWS = {
    job: places
    for page in PAGES
    for table in TABLE.findall((ROOT / page).read_text(encoding="utf-8"))
    for job, places in re.findall(r"^\| ([^|]+) \| (.+) \|$", table, re.M)
}
# What stands in a file of the row: a name or a word by which one sees that this is the place.
HOLDS = {
    "the message of a check": "mistakes",
    "how values are compared and shown in every message": "def agree",
    "the stub that a student finds in a hole": "NotImplementedError",
    "the size of a sector, for both kernel languages": "SECTOR",
    "a CUDA function that the simulator knows": "cuda.syncthreads",
    "a Triton function that the counters know": "create_masked_load",
    "a collective of the simulated ranks": "def all_reduce",
    "the sandbox": "bubblewrap",
    "the limits of time, memory and message sizes": "_S = ",
    "the column of a Canvas or Gradescope export": "Canvas",
    "deadlines and attempts": "deadline",
    "what lateness costs, overrides, the roster": "roster",
    'why a submission "needs a look"': "def to_look_at",
    "what the notebook says below a check of what the grader will not see": "grader",
    "what the doctor says": "Diagnosis",
    "a figure's style, a chart": "def use_style",
    "a widget": "interact",
    "what a lab shows: a figure of its own, a driver, data": "def draw",
    "what several labs train with": "def adam",
    "the drawing of a kernel's accesses": "def side_by_side",
    "the timeline of ranks, with a pipeline's bubble": "def bubble",
    "the sentence for an exception, a timeout, or a missing answer": "took too long",
    "which tests `make test` runs, what it remembers": "changes",
    "what students get in a release": "def write",
}


def files(cell: str) -> list[Path]:
    """The files that a row names; NOUN is that of any lab.

    A folder stands for what it holds, and where it comes first (`nogpu/ranks`), names in it follow.
    """
    named = [name.rstrip("/") for name in re.findall(r"`([\w./]+(?:/|\.py|/\w+))`", cell)]
    folders = [ROOT, *(ROOT / name for name in named if (ROOT / name).is_dir())]
    found: list[Path] = []
    for name in named:
        pattern = name.replace("NN_NOUN", "*").replace("NOUN", "*")
        places = [place for folder in folders for place in folder.glob(pattern)]
        assert places or name == "expected", f"{name} does not exist"
        for place in places:
            found += place.rglob("*.py") if place.is_dir() else [place]
    return found


def test_each_row_has_its_word():
    assert ROWS.keys() == HOLDS.keys()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_leads_to_its_place(row):
    texts = [file.read_text(encoding="utf-8") for file in files(ROWS[row])]
    assert any(HOLDS[row] in text for text in texts), f"{HOLDS[row]!r} in none of {ROWS[row]}"


def test_every_lab_has_its_three_places():
    for name in labs.names():
        noun = name.partition("_")[2]
        places = f"solutions/{name}.py", f"common/lessons/{noun}", f"tests/labs/{noun}"
        assert all((ROOT / place).exists() for place in places), places
