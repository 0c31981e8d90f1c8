"""The form of the code: linter, formatter, types, imports, sizes, and the generated documents."""

import ast
import importlib.util
import re
import subprocess
import sys

import pytest
from PIL import Image

from common.paths import ROOT

FOLDERS = "common", "nogpu", "grading", "benchmarks", "book", "docs", "tests"
TYPES = pytest.mark.slow("pyproject.toml", *(f"{folder}/**/*.py" for folder in FOLDERS))
CHECKS = [
    pytest.param(["ruff", "check", "--output-format=concise", "."], id="ruff finds nothing"),
    pytest.param(["ruff", "format", "--check", "."], id="the formatter changes nothing"),
    pytest.param(["pyrefly", "check", "--output-format=min-text"], id="types fit", marks=TYPES),
]
LONGEST_FUNCTION = 40  # lines
MOST_MODULES = 17  # at the top level of grading/
README_WORDS = 1000
CODE = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "wrong.py"
]


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", CHECKS)
def test_a_tool_of_make_lint_finds_nothing(command):
    result = run("-m", *command)
    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_keep_to_the_layers():
    """The contracts are in pyproject.toml, [tool.importlinter]."""
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = run("-c", lint, "--no-cache")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_function_fits_a_screen():
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in CODE
        if path.name != "right.py"  # answers as students write them
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert not too_long, "\n".join(too_long)


def test_the_top_level_of_grading_stays_small():
    modules = sorted(path.name for path in (ROOT / "grading").glob("*.py"))
    assert len(modules) <= MOST_MODULES, modules


def test_the_readme_is_read_in_five_minutes():
    words = (ROOT / "README.md").read_text(encoding="utf-8").split()
    assert len(words) < README_WORDS, len(words)


def document_maker(name):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documents_say_what_the_code_is():
    generate = document_maker("generate")
    for name in generate.DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text == generate.renewed(text), f"{name}: make docs has not been run"


def test_the_picture_of_an_exercise_is_of_its_present_text():
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
    exercise = document_maker("exercise")
    picture = Image.open(exercise.PICTURE)
    assert picture.info["text_hash"] == exercise.text_hash(), "make picture has not been run"


def test_no_text_of_ours_names_a_place_on_one_machine():
    """Neither a home directory nor a temporary folder stands in what is tracked."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    endings = (".py", ".md", ".ipynb", ".toml", ".yml", ".txt", ".mk", "Makefile")
    for name in filter(None, tracked):
        if name.endswith(endings) and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8")
            for place in ("/ho" + "me/", "/ro" + "ot/", "/tm" + "p/ipykernel", "/wo" + "rk/"):
                assert place not in text, f"{name}: {place}"


def test_a_benchmark_starts_as_a_file_from_any_folder():
    """Without PYTHONPATH, Python looks for modules beside the file only."""
    for path in (ROOT / "benchmarks").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        is_program = '__name__ == "__main__"' in text
        first = re.search(r"^(?:from|import) (?:benchmarks|common|grading)\b", text, re.M)
        if is_program and first:
            assert "sys.path.insert(0, " in text[: first.start()], path.name
