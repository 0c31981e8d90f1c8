"""A student's notebook: the answers to a lab's exercises. The file may hold anything at all."""

import json
import re
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from grading.errors import InputError
from grading.source import answers, holes, labs
from grading.source.answers import StudentCell
from grading.source.holes import Answer
from grading.source.labs import Lab

MAX_NOTEBOOK_BYTES = 50 << 20
# What lies in place of a notebook that a platform does not give, and then why. No other reasons
# are repeated: a student could hand in such a file.
STAND_IN = "In place of a notebook, which "
TOO_LARGE = (
    f"has more than {MAX_NOTEBOOK_BYTES / 1e6:.0f} MB, and no more are allowed: clear its outputs"
)
ENCRYPTED = "is encrypted in the zip file: hand it in without a password"
UNKNOWN_PACKING = "is packed in the zip file in a way that can't be unpacked here"
DAMAGED = "is damaged in the zip file: download the zip file again, and unpack it"
OTHER_KIND = "was handed in as a file of another kind, and not as a notebook, .ipynb"
NOT_UNPACKED = (TOO_LARGE, ENCRYPTED, UNKNOWN_PACKING, DAMAGED, OTHER_KIND)
MAX_WRITTEN = 20_000  # characters of a written answer
TITLE = re.compile(r"^# (\d\d) · ", re.MULTILINE)  # of a lab: # 01 · Strides


def read_answers(lab: Lab, path: Path) -> dict[str, Answer]:
    """{exercise: Answer} of a student's notebook; InputError if the file is not a notebook."""
    return answers.find(
        lab,
        [
            StudentCell(kind, _text(cell.get("source")))
            for cell in _cells(path)
            if (kind := cell.get("cell_type")) in ("code", "markdown")
        ],
    )


def lab_of(path: Path) -> str:
    """The lab that a notebook belongs to, by its file's name, or else by its title.

    InputError if neither says it.
    """
    try:
        return labs.resolve(path)
    except InputError:
        cells = [cell for cell in _cells(path) if cell.get("cell_type") == "markdown"]
    found = {match[1] for cell in cells for match in TITLE.finditer(_text(cell.get("source")))}
    known = [name for name in labs.names() if name[:2] in found]
    if len(known) != 1:
        raise InputError(
            f"{path.name}: neither its name nor its title says which lab it is; call it "
            f"NN_noun.ipynb, with NN_noun one of {', '.join(labs.names())}"
        )
    return known[0]


def questions(lab: Lab) -> list[str]:
    """The questions that a lab asks for a written answer to."""
    asked = (holes.stub(cell.source) for cell in lab.cells if "answer" in cell.tags)
    return [text.replace(holes.BLANK, "").strip() for text in asked]


def written_answers(lab: Lab, path: Path) -> list[tuple[str, str]]:
    """[(question, the student's text)], "" for an unanswered question; InputError as above."""
    cells = [cell for cell in _cells(path) if cell.get("cell_type") == "markdown"]
    texts = [_text(cell.get("source")) for cell in cells]
    tagged = (place for place, cell in enumerate(cells) if "answer" in _tags(cell))
    places = chain(tagged, repeat(len(texts)))
    prose = (holes.stub(cell.source) for cell in lab.cells if cell.kind == "markdown")
    ours = {line.strip() for text in prose for line in text.splitlines()}
    asked = zip(questions(lab), places, strict=False)
    return [(question, _written(question, texts, ours, place)) for question, place in asked]


def _written(question: str, texts: list[str], ours: set[str], place: int) -> str:
    """What a student wrote in the question's cell, or in new cells below it.

    place: where the cell is if the question is in none: a student may have written over it.
    """
    asked = question.splitlines()[0].strip()
    place = next((i for i, text in enumerate(texts) if asked in text), place)
    lines = "\n".join(texts[place : place + 1]).splitlines()
    own = [line for line in lines if line.strip() not in ours]
    for text in texts[place + 1 :]:
        if ours & {line.strip() for line in text.splitlines() if line.strip()}:
            break
        own.append(text)
    answer = "\n".join(own).strip()
    left_out = len(answer) - MAX_WRITTEN
    more = f"\n[... {left_out:,} characters left out ...]" if left_out > 0 else ""
    return answer[:MAX_WRITTEN] + more


def _tags(cell: dict[str, Any]) -> list[Any]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def _text(source: Any) -> str:
    lines = [source] if isinstance(source, str) else source if isinstance(source, list) else []
    return "".join(line for line in lines if isinstance(line, str))


def _cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook as they are in the file. One odd cell must not spoil the others."""
    if not path.is_file():
        raise InputError(f"{path.name} is not a file")
    if (size := path.stat().st_size) > MAX_NOTEBOOK_BYTES:
        raise InputError(
            f"{path.name} has {size / 1e6:.0f} MB; at most {MAX_NOTEBOOK_BYTES / 1e6:.0f} MB are "
            "allowed: clear its outputs"
        )
    data = path.read_bytes()
    text = data.decode(json.detect_encoding(data), errors="replace")  # editors save UTF-16, too
    if not text.strip():
        raise InputError(f"{path.name} is empty")
    if (why := text.removeprefix(STAND_IN)) in NOT_UNPACKED:
        raise InputError(f"{path.name} {why}")
    try:
        notebook = json.loads(text)
        if notebook["nbformat"] < 4:
            import nbformat

            notebook = nbformat.convert(nbformat.reader.reads(text), 4)
        return [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    except MemoryError:
        raise
    except Exception as error:  # the file may hold anything
        raise InputError(f"{path.name} is not a notebook ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Why a file can't be read as a notebook, in some words."""
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    if isinstance(error, (TypeError, LookupError, AttributeError)):
        return "it has no list of cells"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
