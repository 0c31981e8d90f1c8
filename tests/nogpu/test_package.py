"""nogpu as a package of its own: what it needs, what it holds, and whether its README is true."""

import io
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout

import pytest

from common.paths import ROOT
from nogpu.kernels.table import Column, text_table

FOLDER = ROOT / "nogpu"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
ALONE = """
import sys

class Alone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {"numpy", "greenlet", "nogpu"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Alone())
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_threads_simulator_needs_numpy_and_greenlet_alone(tmp_path):
    (code,), (report,) = blocks("python"), blocks("text")
    script = tmp_path / "alone.py"
    script.write_text(ALONE + "exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))\n")
    kernel = tmp_path / "kernel.py"
    kernel.write_text(code)
    done = subprocess.run(
        [sys.executable, script, kernel],
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == report


def test_the_readme_s_table_is_that_of_the_hardware():
    measured = (ROOT / "benchmarks/simt_hardware.md").read_text(encoding="utf-8")
    rows = {tuple(row.split(" | ")[:4]) for row in measured.replace("| ", "", 1).splitlines()}
    rows = {tuple(cell.strip("| ") for cell in row) for row in rows}
    shown = re.findall(
        r"^\| (\w+) \| ((?:global|shared) [\w ]+) \| (\S+) \| (\S+) \|$", README, re.M
    )
    assert len(shown) == 8 and not set(shown) - rows


def test_it_holds_all_its_folders():
    folders = {path.parent.relative_to(FOLDER).parts for path in FOLDER.rglob("*.py")}
    packages = {".".join(("nogpu", *parts)) for parts in folders if "build" not in parts}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages


def test_it_admits_what_the_course_admits():
    course = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = PROJECT["project"]["optional-dependencies"]
    others = [line for name, lines in extras.items() if name != "all" for line in lines]
    assert set(others) <= set(course["dependencies"])


@pytest.mark.slow
def test_pip_installs_it_alone(tmp_path):
    pip = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    copy = shutil.copytree(FOLDER, tmp_path / "source")  # setuptools leaves its own files there
    done = subprocess.run([*pip, "--target", tmp_path, copy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "import nogpu.simt, nogpu.tiles.ptx; print(nogpu.__file__)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == str(tmp_path / "nogpu/__init__.py"), found.stderr


def test_a_table_is_laid_out_as_by_rich():
    box, table = pytest.importorskip("rich.box"), pytest.importorskip("rich.table")
    console = pytest.importorskip("rich.console")
    rows = [["1", "a text that is too long", "1,234"], ["", "short", "5"]]
    by_rich = table.Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title="kernel: 3 programs", title_justify="left"
    )
    by_rich.add_column("line", justify="right", no_wrap=True)
    by_rich.add_column("", no_wrap=True, max_width=10, overflow="ellipsis")
    by_rich.add_column("requests", justify="right", no_wrap=True)
    for row in rows:
        by_rich.add_row(*row)
    by_rich.add_section()
    by_rich.add_row("", "total", "1,239")
    with redirect_stdout(io.StringIO()) as text:
        console.Console(width=200, color_system=None).print(by_rich)
    want = "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip("\n")
    columns = [Column("line"), Column("", 10), Column("requests")]
    assert text_table("kernel: 3 programs", columns, rows, [["", "total", "1,239"]]) == want


def test_a_table_without_rows_has_its_heads():
    assert text_table("none", [Column("line"), Column("requests")], [], []).splitlines() == [
        *("none", "", " line   requests", f" {'─' * 15}"),
    ]
