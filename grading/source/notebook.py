"""What a student's notebook holds: the answers to a lab's exercises, and the written ones. It may be any file at all."""

import json

from grading.source import holes

MAX_NOTEBOOK_BYTES = 50 << 20


def read_answers(lab, path):
    """{exercise: Answer} from a student's notebook; ValueError says in a sentence why the file is none."""
    cells = [_text(cell) for cell in _cells(path) if _kind(cell) == "code"]
    return {exercise.name: holes.find(cells, exercise) for exercise in lab.exercises}


def written_answers(lab, path):
    """[(question, the student's text)] of the answers in prose, "" where there is none; ValueError as read_answers."""
    texts = [_text(cell) for cell in _cells(path) if _kind(cell) == "markdown"]
    ours = {
        line.strip()
        for cell in lab.cells
        if cell.kind == "markdown"
        for line in holes.stub(cell.source).splitlines()
    }
    found = []
    for cell in lab.cells:
        if "answer" not in cell.tags:
            continue
        question = holes.stub(cell.source).replace(holes.BLANK, "").strip()
        place = next(
            (i for i, text in enumerate(texts) if question.splitlines()[0].strip() in text),
            len(texts),
        )
        own = [
            line
            for line in "\n".join(texts[place : place + 1]).splitlines()
            if line.strip() not in ours
        ]
        for text in texts[place + 1 :]:  # some write into a new cell below
            if ours & {line.strip() for line in text.splitlines() if line.strip()}:
                break
            own.append(text)
        found.append((question, "\n".join(own).strip()))
    return found


def _cells(path):
    """The cells of a notebook, as they are; ValueError says in a sentence why the file is none."""
    if not path.is_file():
        raise ValueError(f"{path.name} is no file")
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        raise ValueError(
            f"{path.name} has {path.stat().st_size / 1e6:.0f} MB; {MAX_NOTEBOOK_BYTES / 1e6:.0f} are allowed: clear its outputs"
        )
    text = path.read_text(encoding="utf-8-sig", errors="replace")  # some editors put a mark first
    if not text.strip():
        raise ValueError(f"{path.name} is empty")
    try:
        notebook = json.loads(text)
        if notebook["nbformat"] < 4:
            import nbformat

            notebook = nbformat.convert(nbformat.reader.reads(text), 4)
        return list(notebook["cells"])
    except Exception as error:  # a file of any kind may lie there
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path.name} is no notebook ({type(error).__name__}: {reason})") from None


def _kind(cell):
    """ "code", "markdown" or another: one odd cell must not cost the notebook."""
    kind = cell.get("cell_type") if isinstance(cell, dict) else None
    return kind if isinstance(kind, str) else None


def _text(cell):
    source = cell.get("source")
    lines = [source] if isinstance(source, str) else source if isinstance(source, list) else []
    return "".join(line for line in lines if isinstance(line, str))
