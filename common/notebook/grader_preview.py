"""Says below a check what the grader will not see of the answer that the check used."""

import ast
import functools
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from common.notebook import check_display, check_scope, slices
from common.notebook import notebook_file as notebooks
from common.notebook.magics import as_python
from common.paths import LABS, ROOT

CHECK = re.compile(r"\A# Check(?: \d+)? of \d+\.\d+ ")  # a cell's first line
GIVEN = re.compile(r"\A# (?:Imports|Set-up|Helper code|Check)\b.*: run me.*\n?")
THERE = ("display", "get_ipython")  # the grader has them, too
OURS = "ml-systems-labs"  # the course itself, as a package
BY_TEXT = {"exec", "eval", "globals", "locals", "vars", "modules"}  # they may set any name
READS = re.compile(r"open|load|read|genfromtxt|fromfile|Path")  # functions that read a file
EVERYWHERE = (
    "/dev",
    "/etc",
    "/proc",
    "/sys",
    "/usr",
    sys.prefix,
    str(ROOT / "common"),
    str(ROOT / "nogpu"),
)
GIVEN_TAGS = {"setup", "driver", "check"}
LIMIT = re.compile(r"limit_s=([\d.]+)")
LIMIT_S = 10.0  # of a check that says nothing else
QUICK_S = 1.0  # less than half of any limit


def watch(shell: Any) -> None:
    """From now on, says it below each check that passes in this shell of IPython's.

    In a check, its variables are no longer those of the student's that have the same names.
    """
    apart = check_scope.Apart()
    shell.ast_transformers.append(apart)
    began_s = 0.0

    def begin(info: Any) -> None:
        nonlocal began_s
        began_s, text = _computed_s(), info.raw_cell or ""
        if is_check(text):
            apart.begin(text, (cell for cell in history() if not is_given(cell)))

    def look(result: Any) -> None:
        apart.end()
        text = result.info.raw_cell or ""
        if result.success and is_check(text):
            took_s = _computed_s() - began_s
            for sentence in sentences(history(), shell.user_ns, sys.modules):
                print(sentence)
            for sentence in slow(text, took_s):
                check_display.add_below(sentence)

    def history() -> list[str]:
        return list(map(as_python, shell.history_manager.input_hist_raw))

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", look)


def is_check(text: str) -> bool:
    """Whether a cell is a check: it says so in its first line, or has the tag of checks."""
    return bool(CHECK.match(text)) or "check" in _tags().get(text, ())


def is_given(text: str) -> bool:
    """Whether a cell is the lab's: set-up, helper code or a check."""
    return bool(GIVEN.match(text)) or not GIVEN_TAGS.isdisjoint(_tags().get(text, ()))


def _tags() -> dict[str, list[str]]:
    """{text: tags} of the cells of this notebook's file; {} if it is unknown."""
    path = notebooks.notebook()
    try:
        return _tags_in(path, path.stat().st_mtime_ns) if path else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


@functools.lru_cache(maxsize=1)  # each cell that runs asks
def _tags_in(path: Path, changed_ns: int) -> dict[str, list[str]]:  # noqa: ARG001  (for the cache)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {"".join(cell["source"]): cell["metadata"].get("tags", []) for cell in cells}


def _computed_s() -> float:
    """The seconds of processors that this process has taken, and those that it started.

    As in the grader, it costs nobody anything that other programs compute.
    """
    return sum(os.times()[:4])


def slow(check: str, took_s: float) -> Iterator[str]:
    """Whether a check that passed computed so long that the grader may stop the answer."""
    if took_s > QUICK_S and took_s > (most_s := limit_s(check)) / 2:
        yield (
            f"This check computed for {took_s:.1f} s here. The grader stops an answer after "
            f"{most_s:g} s, and its machine may be slower than yours."
        )


def limit_s(check: str) -> float:
    """How many seconds the grader gives an answer in this check, as the lab's source says."""
    text = GIVEN.sub("", check).strip()
    for folder in (LABS / ".source", ROOT / "solutions"):
        for source in folder.glob("[0-9][0-9]_*.py"):  # a notebook may have any name
            above, is_there, _ = source.read_text(encoding="utf-8").partition(text)
            if is_there:
                found = LIMIT.search(above.strip().rpartition("\n")[2])
                return float(found[1]) if found else LIMIT_S
    return LIMIT_S


def sentences(
    cells: Sequence[str], names: Container[str], modules: Mapping[str, Any]
) -> Iterator[str]:
    """What the grader will not see of all that the last cell used.

    cells: as Python. names: of the notebook's variables. modules: {name: module} of those that are
    imported.
    """
    notebook = slices.Notebook(cells)
    start = notebook.places([len(cells) - 1])
    needed = notebook.needed(start, len(notebook.statements), THERE)
    theirs = notebook.places(i for i, text in enumerate(cells) if not is_given(text))
    by_text = any(_sets_by_text(notebook.statements[place].node) for place in theirs)
    for name in () if by_text else filter(names.__contains__, needed.unknown):
        yield (
            f"The grader will not see `{name}`, which this check used: no import, def, class or "
            "assignment of a cell sets it."
        )
    read = {name for place in start for name in notebook.statements[place].reads}
    answers = {notebook.cell_of[p] for p in needed.places if notebook.statements[p].sets & read}
    for place in (*start, *needed.places):
        yield from _not_run(notebook.statements[place].node)
        yield from _own_modules(notebook.statements[place].node, modules)
    for place in sorted({*start, *needed.places, *notebook.places(answers)}):  # all is executed
        yield from _own_files(notebook.statements[place].node)


def _sets_by_text(node: ast.stmt) -> bool:
    """Whether a statement may set a name that its text does not show. The grader executes it."""
    return any(getattr(part, "id", getattr(part, "attr", "")) in BY_TEXT for part in ast.walk(node))


def _not_run(node: ast.stmt) -> Iterator[str]:
    """Outputs of the shell, of magics and of the keyboard."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = ast.unparse(part.func)
        if name == "input":
            yield "The grader types nothing where this answer asks for `input`."
        elif name.startswith("get_ipython().") and not isinstance(node, ast.Expr):
            yield (
                f"The grader runs no magic and no shell command: `{ast.unparse(node)}` will have "
                "no value there."
            )


def _own_modules(node: ast.stmt, modules: Mapping[str, Any]) -> Iterator[str]:
    """Modules that stand beside the notebook, and packages that the course does not install."""
    for name in _imported(node):
        if name in modules and _is_foreign(name):
            yield f"The grader does not have the package {name}: write this answer without it."
        file = getattr(modules.get(name), "__file__", None)
        if file and Path(file).parent == Path.cwd():
            yield (
                f"The grader does not have {Path(file).name}: copy what you need of it into a cell."
            )


@functools.cache
def _is_foreign(name: str) -> bool:
    """Whether a module comes from a package that requirements.lock does not name."""
    lock = ROOT / "requirements.lock"
    if name in sys.stdlib_module_names or not lock.is_file():
        return False
    named = re.findall(r"^[\w.-]+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    known = {OURS, *map(canonicalize_name, named)}
    if canonicalize_name(name) in known:
        return False
    packages = importlib.metadata.packages_distributions().get(name, ())
    return bool(packages) and known.isdisjoint(map(canonicalize_name, packages))


def _own_files(node: ast.stmt) -> Iterator[str]:
    """Files that are read by a name in the text, and are on the student's machine alone."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call) or not READS.search(ast.unparse(part.func)):
            continue
        texts = [a.value for a in part.args if isinstance(a, ast.Constant)]
        if not texts or not isinstance(texts[0], str) or {"w", "wb", "x"} & set(texts[1:]):
            continue
        path = Path(texts[0])
        if path.is_file() and not str(path.resolve()).startswith(EVERYWHERE):
            yield f"The grader does not have {path}: copy what you need of it into a cell."


def _imported(node: ast.stmt) -> Iterable[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module and not part.level:
            yield part.module.partition(".")[0]
