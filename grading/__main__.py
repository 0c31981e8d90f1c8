"""Grade labs, or run one of the commands for instructors and for authors of labs.

python -m grading 01                       grade your own labs/01_*.ipynb
python -m grading FOLDER --out RESULTS     grade a class, FOLDER/<student>/NN_noun.ipynb
python -m grading COMMAND ...              run a command; COMMAND --help describes it
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Protocol, cast

from common.paths import ROOT
from grading.errors import CommandError
from grading.source import labs
from grading.submissions import escaped


@dataclass(frozen=True)
class Entry:
    """A command of the command line: its module, and a line for the overview."""

    module: str
    summary: str

    @property
    def path(self) -> Path:
        """The module's file, which a release for students may lack."""
        return ROOT.joinpath(*self.module.split(".")).with_suffix(".py")


COMMANDS = {
    "grade": Entry("grading.grade", "grade your own lab or a class (if no command is named)"),
    "build": Entry("grading.source.build", "build labs/*.ipynb, or execute solutions/*.ipynb"),
    "release": Entry("grading.source.release", "make the zip file that students get"),
    "mutants": Entry(
        "grading.mutants", "change a solution in many ways: which do the checks catch?"
    ),
    "canvas": Entry("grading.lms.canvas", "unpack Canvas's zip, or write points and feedback"),
    "gradescope": Entry("grading.lms.gradescope", "make the zip file for Gradescope's autograder"),
    "github": Entry("grading.lms.github", "collect from GitHub Classroom, or write its workflow"),
    "nbgrader": Entry("grading.lms.nbgrader", "write the points into nbgrader's gradebook"),
}


EXTRAS = {"nbgrader": "gradebook", "distributed": "class"}  # packages that instructors may need


class Command(Protocol):
    """What the module of a command defines. Its docstring is the command's description."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Only that command's module is imported."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = _available()
    if not words or words[0] in ("-h", "--help"):
        listed = "\n".join(f"  {name:<11} {entry.summary}" for name, entry in commands.items())
        print(f"{__doc__}\ncommands:\n{listed}")
        return 0 if words else 2
    name = words.pop(0) if words[0] in commands else "grade"
    command = cast("Command", importlib.import_module(COMMANDS[name].module))
    parser = argparse.ArgumentParser(
        prog=f"python -m grading {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    options = parser.parse_args(words)
    try:
        return command.run(options)
    except CommandError as problem:
        return _refuse(str(problem))
    except ModuleNotFoundError as problem:
        package = (problem.name or "?").partition(".")[0]
        needed = f"'ml-systems-labs[{EXTRAS[package]}]'" if package in EXTRAS else package
        return _refuse(f"this needs {package}, which is not installed: pip install {needed}")
    except KeyboardInterrupt:
        _refuse("stopped; give the same command again, and it keeps what is done")
        return 128 + signal.SIGINT
    except OSError as problem:
        place = f"{problem.filename} can't be read or written: " if problem.filename else ""
        return _refuse(f"{place}{problem.strerror or problem}")


def _available() -> dict[str, Entry]:
    """The commands that are here: a release for students has only `grade`."""
    return {name: entry for name, entry in COMMANDS.items() if entry.path.is_file()}


def _refuse(sentence: str) -> int:
    # What it repeats of a table or a file's name may hold what a terminal would obey.
    print(f"grading: {escaped(sentence, keep=chr(10))}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack the letters of a name
        cast(TextIOWrapper, stream).reconfigure(errors="backslashreplace")
    labs.light_jupytext()
    sys.exit(main())
