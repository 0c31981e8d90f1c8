"""What a verdict depends on: the files and the packages behind a lab's answers, or a slow test."""

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

from common.paths import CODE, ROOT
from grading.source import labs
from tests.gate import changes

SIMULATORS = ("nogpu.simt", "nogpu.tiles", "nogpu.ranks", "nogpu.kernels")
# What a lab's kernels are written with, and the simulator that then runs them.
LANGUAGES = {"numba.cuda": "nogpu.simt", "triton": "nogpu.tiles"}
# Modules that know every simulator, whichever of them a lab uses.
HUBS = ("nogpu", "common.hardware.device")
GRADER = (
    *("grading.score", "grading.source.build", "grading.source.notebook"),
    "grading.worker.process",  # which is started by its name
)
JUDGES = ("tests/labs/test_labs.py", "tests/in_one_process.py", "tests/known_answers.py")


@dataclass(frozen=True)
class Subject:
    """What some tests are about. files: what their verdicts depend on, as paths in ROOT.

    answers: files of which each test has its own part; so they are no part of the key.
    """

    name: str
    files: frozenset[str]
    answers: frozenset[str] = frozenset()

    @functools.cached_property
    def key(self) -> str:
        """A hash of all that decides the verdicts, but for the answers' own texts."""
        digest = hashlib.sha256(_machine().encode())
        for name in sorted(self.files):
            digest.update(f"\0{name}\0".encode())
            digest.update((ROOT / name).read_bytes() if (ROOT / name).is_file() else b"absent")
        return digest.hexdigest()

    def changed(self, files: frozenset[str]) -> frozenset[str]:
        """Those of these files on which this subject depends."""
        return files & (self.files | self.answers)


@functools.cache
def answers(lab: str) -> Subject:
    """The known answers of a lab, and what its checks must refuse."""
    graded = {"setup", "hole", "driver", "check"}
    cells = [cell.source for cell in labs.read(lab).cells if cell.tags & graded]
    grader = {m for m in closure(GRADER) if not m.startswith(SIMULATORS)}
    files = {f"solutions/{lab}.py", *JUDGES, *_files(grader | _of_cells(cells))}
    known = frozenset(f"tests/labs/{lab[3:]}/{kind}.py" for kind in ("wrong", "right"))
    return Subject(f"answers of {lab}", frozenset(files), known)


@functools.cache
def notebook(lab: str) -> Subject:
    """The executed notebook of a lab, whose outputs nbval compares."""
    cells = [cell.source for cell in labs.read(lab).cells if cell.kind == "code"]
    files = {f"solutions/{lab}.ipynb", "tests/conftest.py", *_files(_of_cells(cells))}
    return Subject(f"notebook of {lab}", frozenset(files))


@functools.cache
def slow(path: str, also: tuple[str, ...]) -> Subject:
    """A file of slow tests. also: patterns of files on which they depend besides their imports."""
    matches = {str(p.relative_to(ROOT)) for pattern in also for p in ROOT.glob(pattern)}
    return Subject(path, frozenset(_of_test(path)) | matches)


# Imports


def closure(modules: Iterable[str]) -> set[str]:
    """These modules and all that they import, directly or not. Unknown names are left out.

    Of a simulator, all modules count: it imports some of them by their names as text.
    """
    graph = _graph()
    found: set[str] = set()
    for module in set(modules) & graph.modules:
        found |= {module, *graph.find_upstream_modules(module)}
    for simulator in SIMULATORS:
        if any(module.startswith(simulator) for module in found):
            found |= {simulator, *graph.find_descendants(simulator)}
    return found


def imported(source: str) -> Iterator[str]:
    """The names that a text imports: for `from a import b`, both a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def labs_of_test(path: str) -> frozenset[str]:
    """The lab that a test file is about, if it lies in the lab's folder of tests/labs."""
    _, _, inside = path.partition("tests/labs/")
    noun, _, file = inside.partition("/")
    return frozenset(lab for lab in labs.names() if file and lab.partition("_")[2] == noun)


@functools.cache
def _graph() -> grimp.ImportGraph:
    """The imports of our packages. A simulator does not concern a lab only because of a hub."""
    graph = grimp.build_graph(*CODE)
    for hub in HUBS:
        for module in graph.find_modules_directly_imported_by(hub):
            if module.startswith(SIMULATORS):
                graph.remove_import(importer=hub, imported=module)
    return graph


def _of_cells(cells: Iterable[str]) -> set[str]:
    names = {name for cell in cells for name in imported(cell)}
    return closure(names | {LANGUAGES[name] for name in names & LANGUAGES.keys()})


@functools.cache
def _of_test(path: str) -> frozenset[str]:
    """A file outside of the packages (a test, a benchmark), and the files that it needs."""
    names = set(imported((ROOT / path).read_text(encoding="utf-8")))
    beside = {f"{name.replace('.', '/')}.py" for name in names if not name.startswith(CODE)}
    others = {other for other in beside if other != path and (ROOT / other).is_file()}
    return frozenset({path, *_files(closure(names))}.union(*map(_of_test, others)))


def _files(modules: Iterable[str]) -> set[str]:
    """The files of modules, and what lies beside them and is no module: tables, texts, pictures."""
    paths = {_path(module) for module in modules}
    folders = {str(path.parent.relative_to(ROOT)) for path in paths}
    data = {name for name in _tracked() if name.rpartition("/")[0] in folders}
    return {str(path.relative_to(ROOT)) for path in paths} | {
        name for name in data if not name.endswith(".py")
    }


def _path(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _tracked() -> frozenset[str]:
    """The files of the packages, as git lists them; in a copy without git, as the disk does."""
    found = (path for package in CODE for path in (ROOT / package).rglob("*"))
    return changes.tracked(*CODE) or frozenset(str(path.relative_to(ROOT)) for path in found)


@functools.cache
def _machine() -> str:
    """What a verdict depends on besides the repository: packages, Python, a GPU."""
    found = importlib.metadata.distributions()  # the course itself may be found twice
    packages = sorted({f"{package.name}=={package.version}" for package in found})
    gpu = os.path.exists("/dev/nvidia0")
    return f"{platform.python_version()} {platform.machine()} {gpu} {packages}"
