"""earlier_pieces.py of lab 16: a reader's answers are used where they are written and right."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.lessons.scaling import earlier_pieces


def ours(x: int) -> int:
    """What the course has."""
    return x + 1


OURS: dict[str, dict[str, Any]] = {"12": {"added": ours}}


def notebook(folder: Path, *cells: tuple[str, str]) -> None:
    """Writes labs/12_x.ipynb with these (tag, text)."""
    made = [
        {"cell_type": "code", "metadata": {"tags": [tag] if tag else []}, "source": [text]}
        for tag, text in cells
    ]
    (folder / "12_x.ipynb").write_text(json.dumps({"cells": made}))


def adds_one(lab: str, use: Mapping[str, Any]) -> bool:
    """Whether the piece works."""
    return use["added"](2) == 3


def test_the_readers_own(tmp_path: Path) -> None:
    """The answer comes with what it depends on; nothing else of the notebook is executed."""
    notebook(
        tmp_path,
        ("setup", "one = 1\nunused = 1 / 0"),
        ("", "one = 5"),
        ("hole", "def added(x):\n    return x + one"),
        ("check", "raise SystemExit"),
    )
    found = earlier_pieces.collect(OURS, adds_one, tmp_path)
    assert found.yours == ["12"] and found.use["added"](1) == 2


def test_ours_in_its_place(tmp_path: Path) -> None:
    """No notebook, a stub, an error and a wrong answer: the course's piece, and the reason."""
    assert "no such" in earlier_pieces.collect(OURS, adds_one, tmp_path).origin["12"]
    cases = {
        'def added(x):\n    raise NotImplementedError("1.1")': "not written",
        "def added(x):\n    return x": "another result",
        "def added(x):\n    return 1 / 0": "ZeroDivisionError",
        "def added(x)": "not written",
        "added = 1 / 0": "ZeroDivisionError",
    }
    for text, why in cases.items():
        notebook(tmp_path, ("hole", text))
        found = earlier_pieces.collect(OURS, adds_one, tmp_path)
        assert why in found.origin["12"] and found.use["added"] is ours, text
