"""How a notebook shows a check: a tick if it passes, a sentence instead of a traceback if not."""

import html
import linecache
import re
import sys
import traceback
from types import TracebackType
from typing import Any

from common.notebook import notebook_file
from common.paths import ROOT

OURS = (str(ROOT / "common"), str(ROOT / "nogpu"))
TITLE = re.compile(r"# Check(?: \d+)? of (\S+ \w+) \((\d+ points?)\): run me")  # of a check's cell
BOUND = re.compile(r"^(?:def |class )?(\w+) *(?:\(|:|=(?!=))", re.MULTILINE)  # by a cell's lines
FRAMES = 4  # of the student's functions, that a message names
GREEN = "color: var(--jp-success-color1, #2e7d32)"
threads: list[int] = []  # that PyTorch had before the check that runs now
unparsed: set[str] = set()  # names whose cells were no Python when they were last run


class Tick:
    """The tick below the check that ran last. shown: its place on the page; None if it has none."""

    says = ""
    shown: Any = None


def install() -> None:
    """Show ticks and brief errors in this notebook."""
    here = notebook_file.shell()
    here.set_custom_exc((Exception, KeyboardInterrupt), _show)
    here.events.register("pre_run_cell", _alone)
    here.events.register("post_run_cell", _tick)


def _alone(info: Any) -> None:
    """Run a check in one thread, as the grader does.

    Its tensors are small, and on a busy machine threads mostly wait for each other.
    """
    torch = sys.modules.get("torch")
    if torch and TITLE.match(info.raw_cell or ""):
        threads.append(torch.get_num_threads())
        torch.set_num_threads(1)


def _tick(result: Any) -> None:
    """Below a check that passed, show the exercise and its points in green."""
    Tick.shown = None
    while threads:
        sys.modules["torch"].set_num_threads(threads.pop())
    text = (result.info.raw_cell if result.info else None) or ""
    match = TITLE.match(text)
    if not match:
        is_python = getattr(result, "error_before_exec", None) is None
        note = unparsed.difference_update if is_python else unparsed.update
        note(BOUND.findall(text))
    elif result.success and (older := _older(text)):
        print(*older, sep="\n")
    elif result.success:
        from IPython.display import display

        Tick.says = f"✓ {match[1]} · {match[2]}"
        Tick.shown = display(_ticked(Tick.says), raw=True, display_id=True)


def _ticked(says: str, below: str = "") -> dict[str, str]:
    """What to display for a tick, and below it."""
    page = f'<b style="{GREEN}">{html.escape(says)}</b>'
    if not below:
        return {"text/plain": says, "text/html": page}
    return {"text/plain": f"{says}\n{below}", "text/html": f"{page}<br>{html.escape(below)}"}


def add_below(sentence: str) -> None:
    """Show a sentence below the tick of the check that has just passed.

    The tick on the page changes, and the cell's output does not: a sentence about this machine must
    not make the output differ from that of another one. nbval compares outputs.
    """
    if Tick.shown:
        Tick.shown.update(_ticked(Tick.says, sentence), raw=True)
    else:
        print(sentence)


def _show(
    here: Any,
    kind: type[BaseException],
    error: BaseException,
    tb: TracebackType,
    tb_offset: int | None = None,
) -> list[str]:
    """Show an error: briefly, if it is not only about the student's own cell."""
    if hasattr(error, "_render_traceback_"):
        shown = error._render_traceback_()
    elif (lines := brief(error, tb)) is not None:
        said = str(error) or "the cell was stopped"
        shown = [f"\033[31m{kind.__name__}\033[0m: {said}", *lines]
    else:
        shown = here.InteractiveTB.structured_traceback(kind, error, tb, tb_offset=tb_offset)
    here._showtraceback(kind, error, shown)
    return shown


def brief(error: BaseException, tb: TracebackType | None) -> list[str] | None:
    """What to show after the error's own text; None if the whole traceback should be shown.

    A failed check and an unsolved hole need nothing more. An error that comes through the course's
    code, or through a check, needs the student's lines and not ours.
    """
    frames = traceback.extract_tb(tb)
    if not frames:
        return None
    last, own = frames[-1], [frame for frame in frames if _is_cell(frame)]
    failed_check = isinstance(error, AssertionError) and (
        last.filename.startswith(OURS) or (str(error) and _is_cell(last))
    )
    check = "".join(linecache.getlines(own[0].filename)) if own else ""
    if isinstance(error, NotImplementedError) or failed_check:
        return _older(check)
    missing = _not_run(error)
    through_ours = any(frame.filename.startswith(OURS) for frame in frames)
    in_check = bool(TITLE.match(check))
    if not through_ours and not in_check and not missing:
        return None
    notes = missing + [f"  {note}" for note in getattr(error, "__notes__", ())]
    functions = [frame for frame in own if frame.name != "<module>"] or own[-1:]
    lines = [f"  in {f.name}, line {f.lineno}: {f.line}" for f in functions[-FRAMES:]]
    return [*notes, *lines, *_older(check), "  (%tb in a new cell shows the whole traceback.)"]


def _not_run(error: BaseException) -> list[str]:
    """For a missing name that a cell of this notebook defines: which cell; else nothing."""
    name = error.name if type(error) is NameError else None
    line = notebook_file.defined_by(name) if name else ""
    says = "  It is defined in this cell, which has not run yet, or ended in an error:"
    return [says, f"    {line}"] if line else []


def _older(check: str) -> list[str]:
    """For names in a check whose cells could not be run: that it used what they were before."""
    used = unparsed.intersection(re.findall(r"\w+", check)) if TITLE.match(check) else ()
    return [
        f"  The cell of `{name}` is no valid Python. This check used what it was before."
        for name in sorted(used)
    ]


def _is_cell(frame: traceback.FrameSummary) -> bool:
    return "ipykernel" in frame.filename or frame.filename.startswith("<ipython")
