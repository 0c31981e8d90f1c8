"""The table of limits in docs/instructors.md says what the code does."""

import pytest

from common.notebook import slices
from common.paths import ROOT
from grading import classroom, feedback, report, similar, submissions
from grading.course import page
from grading.jail import limits as worker
from grading.source import holes, labs, notebook
from grading.worker import allowance, ranks, session
from grading.worker import limits as wire

MIB, GIB = 1 << 20, 1 << 30
SHARES = {10.0: "a tenth"}
CHECK_S = labs.Cell("code", "").limit_s
# {how a row begins: what its limit must say}
SAYS = {
    "a notebook": [f"{notebook.MAX_NOTEBOOK_BYTES // MIB} MB"],
    "a cell": [f"{holes.MAX_CELL:,} characters"],
    "an answer, with what it reads": [f"{holes.MAX_ANSWER:,} characters"],
    "statements of a notebook": [f"{slices.MOST:,}"],
    "time to read a notebook": [f"{classroom.READ_S} s"],
    "memory of a process that reads": [f"{classroom.READER_BYTES / GIB:g} GB more", "2 GB in all"],
    "memory of a process that grades": [f"{classroom.GRADER_BYTES / GIB:g} GB more", "4 GB in all"],
    "memory of a worker": [f"{worker.MEMORY_BYTES // GIB} GB"],
    "memory of all workers": [f"{worker.GROUP_BYTES // GIB} GB"],
    "who ends first": [],
    "processes and threads": ["about 64"],
    "files of a worker": [
        f"{worker.SCRATCH_BYTES // MIB} MB",
        f"{worker.SCRATCH_FILES:,} files",
        f"{worker.FILE_BYTES // MIB} MB each",
    ],
    "time of a cell": [
        f"{session.CELL_S:g} s;",
        f"{session.CELLS_S:g} s together",
        f"more than {session.SLOW_S:g} s",
    ],
    "time of a check; of a notebook": [f"{CHECK_S:g} s", f"{session.NOTEBOOK_S / 60:g} minutes"],
    "what counts as time": [f"{SHARES[allowance.BUSIEST]} of the clock's"],
    "time of a check in the grader": ["twice that"],
    "a value that crosses": [
        f"{wire.MAX_ARRAY_BYTES // MIB} MB",
        f"{wire.MAX_ITEMS:,} items",
        f"{wire.MAX_DEPTH} deep",
    ],
    "bytes that the ranks": [
        f"{ranks.MAX_RUN_BYTES // MIB} MB",
        f"{ranks.MAX_BACK_BYTES // MIB} MB",
    ],
    "what a rank sends at once": [f"{ranks.MAX_PLAIN_BYTES // MIB} MB"],
    "what a cell answers": [f"{wire.MAX_EXECUTED_BYTES // MIB} MB"],
    "an exception's text; a message": [f"{wire.MAX_TEXT:,}; {report.MAX_MESSAGE:,} characters"],
    "a line that a message quotes": [f"{holes.QUOTED} characters"],
    "a name of a student": [f"{submissions.MAX_NAME} characters"],
    "a file in Canvas": [f"{notebook.MAX_NOTEBOOK_BYTES // MIB} MB"],
    "a student's page": [
        f"{feedback.MAX_PAGE:,} characters",
        f"{feedback.MAX_LINES} lines of {feedback.MAX_LINE} characters",
    ],
    "a written answer": [
        f"{notebook.MAX_WRITTEN:,} characters",
        f"{feedback.MAX_WRITTEN:,} together",
    ],
    "lists on the class page": [
        f"{page.SHOWN} entries",
        f"{report.MOST_ROWS} rows",
        f"{report.MOST_REASON} characters",
    ],
    "a student's answers": [f"{similar.MOST_COMPARED:,} characters"],
    "pairs that are compared": [f"{similar.MOST_COMPARISONS:,}"],
    "`similar.html`": [f"{similar.MOST_PAIRS} pairs", f"{similar.ALL_LINES:,} lines"],
}


def rows():
    text = (ROOT / "docs" / "instructors.md").read_text()
    table = text.partition("| what | limit | beyond it |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [row for row in cells if len(row) == 3 and not row[0].startswith("---")]


@pytest.mark.parametrize("begins, wanted", SAYS.items(), ids=SAYS)
def test_a_row_says_what_the_code_does(begins, wanted):
    (row,) = (row for row in rows() if row[0].startswith(begins))
    for words in wanted:
        assert words in row[1], row


def test_each_row_is_compared():
    beginnings = [row[0] for row in rows()]
    assert all(any(name.startswith(begins) for begins in SAYS) for name in beginnings), beginnings
    assert len(beginnings) == len(SAYS)
