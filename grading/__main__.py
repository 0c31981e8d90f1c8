"""python -m grading 01                      grades your own labs/01_*.ipynb
python -m grading FOLDER --out RESULTS    grades FOLDER/<student>/NN_noun.ipynb, all cores
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from grading import classroom, report
from grading import lab as labs
from grading.lab import ROOT

console = Console(highlight=False)


class BadInput(Exception):
    """What the caller gave can't be used; the text says what was given and what is allowed."""


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m grading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", help="a lab (01, strides), a notebook, or a folder of submissions")
    parser.add_argument("--out", type=Path, metavar="RESULTS", help="the folder for results.json and results.csv")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        help="processes that grade (all cores)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the checks' random cases")
    options = parser.parse_args(arguments)
    try:
        if options.jobs < 1 or options.seed < 0:
            raise BadInput(f"--jobs {options.jobs} --seed {options.seed}: --jobs takes 1 or more, --seed 0 or more")
        if Path(options.what).is_dir():
            grade_class(Path(options.what), options.out, options.jobs, options.seed)
        else:
            grade_own(options.what, options.out, options.seed)
    except BadInput as problem:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"grading: {problem}", markup=False)
        return 2
    return 0


def grade_own(word, out, seed):
    """Grades one notebook and shows an exercise a line."""
    path = Path(word)
    try:
        name = labs.resolve(word)
    except ValueError as problem:
        kind = "no such folder or notebook, and " if os.sep in word or path.suffix else ""
        raise BadInput(f"{kind}{problem}; or give a folder of submissions") from None
    if path.suffix != ".ipynb":
        path = ROOT / "labs" / f"{name}.ipynb"
    if not path.is_file():
        raise BadInput(f"there is no notebook {os.path.relpath(path)}: make labs builds the labs")
    rows, results = classroom.grade_notebook(name, path, "me", seed)
    console.print(report.lab_table(name, results))
    if out:
        write(rows, out)


def grade_class(folder, out, jobs, seed):
    """Grades every submission of a folder and writes the results."""
    if out is None:
        raise BadInput(f"{folder} is a folder of submissions: say where the results go (--out RESULTS)")
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file: give a folder, which is made if it is not there")
    try:
        todo, strays = classroom.submissions(folder)
    except PermissionError as problem:
        raise BadInput(f"no permission to read {problem.filename}") from None
    if not todo:
        raise BadInput(
            f"{folder} holds no submission: they are {folder}/<student>/NN_noun.ipynb, with NN_noun one of "
            f"{', '.join(labs.names())}"
        )
    rows = []
    with Progress(console=console) as progress:
        task = progress.add_task("grading", total=len(todo))
        for done in classroom.grade_all(todo, jobs, seed):
            rows += done
            progress.advance(task)
    rows.sort(key=lambda row: (row["student"], row["lab"]))
    write(rows, out)
    console.print(
        report.class_table(
            sorted(rows, key=lambda row: (row["lab"], [int(n) for n in row["exercise"].split()[0].split(".")]))
        )
    )
    for stray in strays:
        console.print(f"left out: {stray} (no lab has that name)", markup=False, soft_wrap=True)
    students = len({row["student"] for row in rows})
    console.print(
        f"{len(todo)} submissions of {students} students: {out / 'results.json'}, {out / 'results.csv'}", soft_wrap=True
    )


def write(rows, out):
    try:
        report.write(rows, out)
    except OSError as problem:
        raise BadInput(f"the results can't be written to {out}: {problem.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
