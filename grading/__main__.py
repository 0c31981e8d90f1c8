"""python -m grading 01                      grades your own labs/01_*.ipynb
python -m grading FOLDER --out RESULTS    grades FOLDER/<student>/NN_noun.ipynb, all cores; what is graded already is kept
"""

import argparse
import contextlib
import os
import re
import sys
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common.paths import LABS
from grading import classroom, feedback, report, seeds, similar, store, submissions
from grading.jail.choice import JailError, choose
from grading.source import labs

MANY = 20  # lines that say the same
console = Console(highlight=False)


class BadInput(Exception):
    """What the caller gave can't be used; the text says what was given and what is allowed."""


def main(arguments=None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.jobs < 1 or (options.seed or 0) < 0:
            raise BadInput(
                f"--jobs {options.jobs} --seed {options.seed or 0}: --jobs takes 1 or more, --seed 0 or more"
            )
        if options.seed is not None and options.seed_file:
            raise BadInput(
                f"--seed {options.seed} with --seed-file {options.seed_file}: give one of them"
            )
        if options.unsafe and options.jail:
            raise BadInput(f"--jail {options.jail} with --unsafe: give one of them")
        if options.what and Path(options.what).is_dir():
            grade_class(Path(options.what), options)
        else:
            grade_own(options.what, options)
    except BadInput as problem:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"grading: {problem}", markup=False
        )
        return 2
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m grading",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", help="a lab (01, strides), a notebook, or a folder of submissions")
    parser.add_argument("--out", type=Path, metavar="RESULTS", help="the folder for the results")
    parser.add_argument(
        "--seed",
        type=int,
        help="of the checks' random cases (0; for a class one from RESULTS/seed)",
    )
    parser.add_argument(
        "--seed-file",
        type=Path,
        metavar="FILE",
        help="of the course's secret seed; drawn if it is not there",
    )
    parser.add_argument(
        "--jail",
        metavar="WORD",
        help="which jail the students' code runs in (the best that is to be had)",
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="run the students' code with no jail at all"
    )
    several = parser.add_argument_group("for a class")
    several.add_argument(
        "--jobs", type=int, default=classroom.cores(), help="processes that grade (all cores)"
    )
    several.add_argument(
        "--scheduler", metavar="ADDRESS", help="Dask's, tcp://host:8786: its workers grade instead"
    )
    several.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="[LAB=]TIME",
        help="2026-11-20T18:00, for one lab or for all",
    )
    several.add_argument(
        "--count",
        choices=["last", "first", "best"],
        default="last",
        help="which of several attempts counts (the last)",
    )
    several.add_argument("--fresh", action="store_true", help="grade also what was graded before")
    several.add_argument(
        "--similar", action="store_true", help="look for submissions alike, too (needs copydetect)"
    )
    return parser


# -------------------------------------------------------------------- one's own


def grade_own(word, options) -> None:
    """Grades one notebook and shows an exercise a line."""
    path = Path(word)
    try:
        name = labs.resolve(word)
    except ValueError as problem:
        kind = "no such folder or notebook, and " if os.sep in word or path.suffix else ""
        raise BadInput(f"{kind}{problem}; or give a folder of submissions") from None
    if path.suffix != ".ipynb":
        path = LABS / f"{name}.ipynb"
    if not path.is_file():
        mend = (
            f"give its path, or a lab ({name[:2]})"
            if Path(word).suffix == ".ipynb"
            else "make labs builds the labs"
        )
        raise BadInput(f"there is no notebook {os.path.relpath(path)}: {mend}")
    jail = _jail(options) if options.jail else "none"  # one's own code may do what one may do
    one = classroom.grade_one(
        submissions.Submission("me", name, path), _seeds([name], options)[name], jail
    )
    console.print(report.lab_table(name, one.results))
    if options.out:
        with _writing(options.out):
            report.write(one.rows, options.out)


def _seeds(names, options, file=None):
    """{lab: the seed of its checks}: --seed, or from the secret in --seed-file or in this file; 0 where there is none."""
    file = options.seed_file or file
    if options.seed is not None or file is None:
        return dict.fromkeys(names, options.seed or 0)
    try:
        secret = seeds.secret(file)
    except seeds.NoSecret as problem:
        raise BadInput(str(problem)) from None
    except OSError as problem:
        raise BadInput(f"the seed can't be kept in {file}: {problem.strerror}") from None
    return {name: seeds.of(secret, name) for name in names}


def _jail(options):
    """The name of the jail to grade in."""
    try:
        return choose("none" if options.unsafe else options.jail).name
    except JailError as problem:
        raise BadInput(str(problem)) from None


# --------------------------------------------------------------------- a class


def grade_class(folder, options) -> None:
    """Grades every submission of a folder and writes all that is made of it."""
    out = options.out
    if out is None:
        raise BadInput(
            f"{folder} is a folder of submissions: say where the results go (--out RESULTS)"
        )
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file: give a folder, which is made if it is not there")
    handed_in, strays = _find(folder, options)
    jail = _jail(options)
    try:
        with _writing(out):
            kept = store.Store(out, fresh=options.fresh)
    except store.Busy:
        raise BadInput(
            f"another grader works in {out}: let it end, or give another folder"
        ) from None
    graded = _graded(handed_in, kept, _seeds(labs.names(), options, out / "seed"), jail, options)
    counting = classroom.counting(graded)
    rows = [row for one in counting for row in one.rows]
    with _writing(out):
        report.write(rows, out)
        feedback.write_students(counting, out / "feedback")
        feedback.write_answers(counting, out / "answers")
        with open(out / "summary.txt", "w", encoding="utf-8") as file:
            for screen in (console, Console(file=file, width=120)):
                _summarise(screen, counting, rows)
        if options.similar:
            _look_for_similar(counting, out)
    for line in _left_out(folder, handed_in, strays):
        console.print(line, markup=False, soft_wrap=True)
    console.print(_ending(graded, counting, out), markup=False, soft_wrap=True)


def _find(folder, options):
    names = labs.names()
    try:
        handed_in, strays = submissions.find(folder, deadlines(options.deadline), options.count)
    except PermissionError as problem:
        raise BadInput(f"no permission to read {problem.filename}") from None
    if not handed_in:
        raise BadInput(
            f"{folder} holds no submission: they are {folder}/<student>/NN_noun.ipynb, with NN_noun one of {', '.join(names)}"
        )
    return [one for one in handed_in if one.counts], strays


def _left_out(folder, handed_in, strays):
    """What lies in the folder and was not graded, in lines."""
    for stray in strays:
        why = "a link is not followed" if stray.is_symlink() else "no lab has that name"
        yield f"left out: {stray} ({why})"
    for loose in sorted(folder.glob("*.ipynb")):
        yield f"left out: {loose} (it lies in no student's folder)"
    there = {
        path.name
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith((".", "__MACOSX"))
    }
    if nothing := sorted(there - {one.student for one in handed_in}):
        yield f"nothing to grade in {len(nothing)} folders: {', '.join(nothing)}"


def deadlines(words):
    """{lab: seconds since 1970} from ["TIME", "LAB=TIME", ...]; a time with no zone is this machine's."""
    found = {}
    for word in sorted(
        words, key=lambda word: "=" in word
    ):  # what is said of one lab goes before what is said of all
        lab, _, time = word.rpartition("=")
        try:
            time_s = datetime.fromisoformat(time).timestamp()
            found |= dict.fromkeys([labs.resolve(lab)] if lab else labs.names(), time_s)
        except ValueError as problem:
            reason = f": {problem}" if "no lab" in str(problem) else ""
            raise BadInput(
                f"--deadline {word}: give a time, 2026-11-20T18:00, or LAB=TIME{reason}"
            ) from None
    return found


def _graded(handed_in, kept, seeds, jail, options):
    """Grades with a bar that says how far it is."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("reading", total=len(handed_in))

        def progress(done, of) -> None:
            bar.update(task, description="grading", completed=done, total=of)

        try:
            hidden, scheduler = (
                [options.what, options.out, *filter(None, [options.seed_file])],
                options.scheduler,
            )
            return classroom.grade_class(
                handed_in,
                kept,
                seeds,
                options.jobs,
                jail,
                hidden=hidden,
                scheduler=scheduler,
                progress=progress,
            )
        except ModuleNotFoundError as problem:
            raise BadInput(
                f"--scheduler needs {problem.name}, which is not installed: pip install distributed"
            ) from None
        except (classroom.NoWorkers, JailError) as problem:
            raise BadInput(str(problem)) from None
        except OSError as problem:
            raise BadInput(
                f"the results can't be written to {options.out}: {problem.strerror}"
            ) from None


def _summarise(screen, graded, rows) -> None:
    """The class at a glance: how the points fell, what was hard, which mistakes, who needs a look."""
    screen.print(report.distribution(rows))
    screen.print(
        report.class_table(sorted(rows, key=lambda row: (row["lab"], _place(row["exercise"]))))
    )
    looks = report.to_look_at(graded)
    only_late = [look for look in looks if re.fullmatch(r"[\d.]+ h late", look[2])]
    if len(only_late) > MANY:  # among them nobody would see the others
        looks = [look for look in looks if look not in only_late]
    for table in (report.mistakes_table(graded), report.look_table(looks)):
        if table.row_count:
            screen.print(table)
    if len(only_late) > MANY:
        screen.print(f"{len(only_late)} more were late: results.csv says by how much\n")


def _place(exercise):
    return [int(number) for number in exercise.split()[0].split(".")]


def _look_for_similar(graded, out) -> None:
    try:
        pairs = similar.pairs(graded)
    except ImportError:
        raise BadInput(
            "--similar needs copydetect, which is not installed: pip install copydetect"
        ) from None
    similar.write(pairs, out)
    console.print(
        f"{len(pairs)} pairs of submissions alike: {out / 'similar.html'}",
        markup=False,
        soft_wrap=True,
    )


def _ending(graded, counting, out) -> str:
    students, before = (
        len({one.submission.student for one in counting}),
        sum(one.kept for one in graded),
    )
    kept = f", {before} of them kept from before" if before else ""
    return f"{len(graded)} submissions of {students} students{kept}: {out / 'results.csv'}, {out / 'feedback'}"


@contextlib.contextmanager
def _writing(out):
    """A full disk, or no permission, in a sentence."""
    try:
        yield
    except OSError as problem:
        raise BadInput(f"the results can't be written to {out}: {problem.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
