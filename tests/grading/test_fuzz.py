"""Fuzzed notebooks: each exercise of any file gets an answer or a reason, and nothing else happens.

FUZZ=10000 tries that many.
"""

import copy
import functools
import json
import os
import random
from pathlib import Path

import nbformat
import pytest

from grading import score
from grading.source import build, holes, notebook
from grading.source import labs as lab
from grading.worker.fork_server import ForkServer
from tests.mini_lab import mini_lab

COUNT = int(os.environ.get("FUZZ", 1000))
MINI = mini_lab()
STATUSES = {
    "passed",
    "partly passed",
    "failed",
    "not attempted",
    "missing",
    "error",
    "timeout",
    "died",
}
ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    "",
    "\0",
    "\ud800",
    "def double(",
    "a" * 10_000,
    [],
    {},
    [[]],
    [None],
    {"cells": []},
    "code",
    "markdown",
    ["def double(x):\n", 3, "    return x"],
    "%%bash\nrm -rf x",
    "\x1b[2J",
    "double = lambda x: 2 * x",
    "((((" * 50,
    "é" * 100,
]


@functools.cache
def full_notebook(lab_):
    """The lab, solved, as a student would hand it in."""
    return json.loads(nbformat.writes(build.lab_notebook(lab_.filled(lab_.solution))))


def nodes(value, path=()):
    """The paths to all that a JSON value holds."""
    yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from nodes(inner, (*path, key))


def with_odd_structure(tree, rng):
    """The tree with a few nodes removed, doubled, exchanged or made odd."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 4)):
        *way, last = rng.choice([path for path in nodes(tree) if path] or [(None,)])
        if last is None:
            break
        holder = tree
        for key in way:
            holder = holder[key]
        act = rng.randrange(4)
        if act == 0:
            del holder[last]
        elif act == 1 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[last]))
        elif act == 2 and isinstance(holder, list):
            other = rng.randrange(len(holder))
            holder[last], holder[other] = holder[other], holder[last]
        else:
            holder[last] = copy.deepcopy(rng.choice(ODD))
    return tree


def with_odd_bytes(content, rng):
    """The bytes cut, doubled, overwritten with noise, or in another encoding."""
    content = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        place, length = rng.randrange(len(content) + 1), rng.choice([1, 2, 10, 1000])
        act = rng.randrange(5)
        if act == 0:
            content[place : place + length] = b""
        elif act == 1:
            content[place:place] = content[place : place + length]
        elif act == 2:
            content[place : place + length] = rng.randbytes(length)
        elif act == 3:
            content[place:place] = rng.choice(
                [
                    b"\0",
                    b"\xff\xfe",
                    b"\xef\xbb\xbf",
                    b"[" * 2000,
                    b"{}",
                    b'"',
                    b"\\",
                    b"\\ud800",
                    b"9" * 5000,
                ]
            )
        else:
            del content[rng.randrange(len(content) + 1) :]
    return bytes(content)


def fuzzed(lab_, seed):
    """The bytes of a file that may once have been a notebook of this lab."""
    rng, tree = random.Random(seed), full_notebook(lab_)
    content = json.dumps(with_odd_structure(tree, rng) if seed % 2 else tree).encode()
    return content if seed % 2 and seed % 3 else with_odd_bytes(content, rng)


def read(lab_, path):
    """What read_answers gives: one answer per exercise, or None if a sentence says why not."""
    try:
        answers = notebook.read_answers(lab_, path)
    except ValueError as reason:
        assert str(reason).startswith(path.name) and 10 < len(str(reason)) < 300
        return None
    assert list(answers) == [exercise.name for exercise in lab_.exercises]
    for answer in answers.values():
        assert isinstance(answer, holes.Answer)
        assert answer.text is not None or (answer.status in STATUSES and answer.problem)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("of", [MINI, lab.read(lab.names()[0])], ids=lambda lab_: lab_.name)
def test_a_fuzzed_notebook_gives_answers_or_a_reason(of, tmp_path):
    path, readable = tmp_path / f"{of.name}.ipynb", 0
    for seed in range(COUNT):
        path.write_bytes(fuzzed(of, seed))
        readable += read(of, path) is not None
    assert 0.1 * COUNT < readable < 0.95 * COUNT  # both kinds were tried


@pytest.mark.slow
def test_fuzzed_notebooks_are_graded(tmp_path):
    """What they hold is executed, and each exercise gets its result."""
    path, fork_server, graded = tmp_path / "99_mini.ipynb", ForkServer(bare=True), 0
    try:
        for seed in range(1, 1 + COUNT // 10, 2):
            path.write_bytes(fuzzed(MINI, seed))
            if answers := read(MINI, path):
                results = score.score(MINI, answers, fork_server)
                assert [result.exercise for result in results] == [
                    f"{e.number} {e.name}" for e in MINI.exercises
                ]
                for result in results:
                    assert result.status in STATUSES and 0 <= result.points <= result.max_points
                    assert result.status == "passed" or result.message
                    json.dumps(result.message).encode()
                graded += 1
    finally:
        fork_server.close()
    assert graded


CODE = "def double(x):\n    return 2 * x"


def cell(source, **more):
    return {
        "cell_type": "code",
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        **more,
    }


def cells_file(*cells, **more):
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **more}


@pytest.mark.slow
@pytest.mark.parametrize(
    "content, status",
    [
        (cells_file(), "missing"),
        (cells_file(cell(CODE), cell(CODE)), ""),
        (cells_file(cell(CODE, id="same"), cell("1", id="same")), ""),
        (cells_file(cell("def double(x):\n    return x"), cell(CODE)), ""),
        (cells_file(cell(CODE), cell(MINI.exercise("double").stub)), ""),
        (cells_file(cell(CODE, cell_type="markdown")), "missing"),
        (cells_file(cell(CODE, metadata=None, outputs=7, execution_count="x")), ""),
        (cells_file(cell(CODE.splitlines(keepends=True))), ""),
        (cells_file(cell(CODE.replace("\n", "\r\n"))), ""),
        (cells_file(cell("\ufeff" + CODE)), "missing"),
        (cells_file(cell("%%time\n" + CODE)), ""),
        (cells_file(cell("!rm -rf /\n" + CODE)), ""),
        (cells_file(cell(CODE + "\n" + CODE.replace("2", "3"))), ""),
        (cells_file(cell("def double(x):\n  return (2 * x")), "error"),
        (cells_file(cell("def double(x):\n\treturn 2 * x\n        pass")), "error"),
        (cells_file(cell("double = " + "(" * 10_000 + ")" * 10_000)), "error"),
        (cells_file(cell("double = " + "-" * 100_000 + "1")), "error"),
        (cells_file(cell("def double(x):\n    return 2 * x\0")), "error"),
        (cells_file(cell("# coding: latin-99\n" + CODE)), ""),
        (cells_file(*[cell("pass")] * 5000, cell(CODE)), ""),
        (cells_file(cell(CODE), nbformat=99), ""),
        (cells_file(cell(CODE), nbformat="4"), None),
        (cells_file(cell(CODE), cells={"0": cell(CODE)}), "missing"),
        ([], None),
        (7, None),
        ("text", None),
        ({}, None),
        ({"cells": None}, None),
        ({"nbformat": 1, "cells": []}, "missing"),
        ({"nbformat": 3, "worksheets": 7}, None),
    ],
    ids=range(30),
)
def test_an_odd_notebook_has_its_honest_status(content, status, tmp_path):
    """status: of the answer to `double`: "" if it is there, None if the file is not a notebook."""
    path = tmp_path / "99_mini.ipynb"
    path.write_text(json.dumps(content))
    answers = read(MINI, path)
    assert (answers and answers["double"].status) == status


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to(path),
        lambda path: path.write_bytes(b"["),
        lambda path: path.write_bytes(b"[" * 10**6),
        lambda path: path.write_bytes(b"\x1f\x8b\x08" * 100),
        lambda path: path.write_bytes(b" " * (51 << 20)),
        lambda path: path.write_text('{"nbformat": NaN, "cells": []}' * 2),
        lambda path: path.write_text('{"nbformat": ' + "9" * 5000 + "}"),
    ],
    ids=range(10),
)
def test_an_odd_file_has_a_reason(make, tmp_path):
    path = Path(tmp_path) / "99_mini.ipynb"
    make(path)
    with pytest.raises((ValueError, OSError)):
        notebook.read_answers(MINI, path)
