"""The code keeps to the house's form."""

import subprocess
import sys

from common.paths import ROOT


def test_ruff_finds_nothing():
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=concise", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout


def test_no_text_of_ours_names_a_place_on_one_machine():
    """Neither a home directory nor a temporary folder stands in what is tracked."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, tracked):
        if (
            name.endswith((".py", ".md", ".ipynb", ".toml", ".yml", ".txt", "Makefile"))
            and (ROOT / name).is_file()
        ):
            text = (ROOT / name).read_text(encoding="utf-8")
            for place in ("/ho" + "me/", "/ro" + "ot/", "/tm" + "p/ipykernel", "/wo" + "rk/"):
                assert place not in text, f"{name}: {place}"
