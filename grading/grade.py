"""Grade your own lab, or the submissions of a class.

python -m grading 01                       grade your own labs/01_*.ipynb
python -m grading FOLDER --out RESULTS     grade a class, FOLDER/<student>/NN_noun.ipynb

A class is graded on all cores. What an earlier run graded is kept.
"""

import argparse
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common.hardware import device
from common.paths import LABS
from grading import classroom, feedback, report, seeds, similar, submissions
from grading.course import changes, look, marks, page, settings
from grading.errors import CommandError, InputError, did_you_mean
from grading.jail.choice import choose
from grading.report import Graded
from grading.source import labs
from grading.source.notebook import lab_of
from grading.store import Store
from grading.submissions import Submission, escaped, shown

MANY = 20  # more names or late submissions than this are counted, not listed
MOST_STRAYS = 100  # notebooks of no lab that are listed: one student may hand in thousands
console = Console(highlight=False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command `grade` accepts."""
    add = parser.add_argument
    add("what", help="a lab (01 or strides), a notebook, or a folder of submissions")
    add("--out", type=Path, metavar="RESULTS", help="the folder to write the results to")
    add(
        "--seed",
        type=int,
        help="the seed of the checks' random cases (default: 0; for a class the file RESULTS/seed)",
    )
    add(
        "--seed-file",
        type=Path,
        metavar="FILE",
        help="the file with the course's secret seed; if it does not exist, a seed is drawn",
    )
    add(
        "--jail",
        metavar="NAME",
        help="the sandbox for the students' code: bubblewrap, landlock or none (default for a "
        "class: the best one on this machine)",
    )
    add("--unsafe", action="store_true", help="run the students' code without a sandbox")
    add(
        "--strict",
        action="store_true",
        help="for your own lab: end with exit code 1 unless every exercise passes",
    )
    _add_class_arguments(parser.add_argument_group("for a class"))


def _add_class_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--jobs",
        type=int,
        default=device.cores(),
        help="how many processes grade at the same time (default: one per core)",
    )
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="let the workers of this Dask scheduler grade, for example tcp://host:8786",
    )
    add(
        "--deadline",
        action="append",
        default=[],
        metavar="[LAB=]TIME",
        help="when a lab (or every lab) is due, for example 2026-11-20T18:00; may be repeated",
    )
    add(
        "--count",
        choices=["last", "first", "best"],
        default="last",
        help="which of several attempts counts (default: last)",
    )
    add(
        "--times",
        choices=["files", "names", "none"],
        help="when a notebook was handed in: the time of its file, or the time in its name or in "
        "timestamp.txt, which a student may have chosen; none: nobody knows, and nobody is late "
        "(default: files)",
    )
    add("--fresh", action="store_true", help="grade again what was graded before")
    _add_similar_arguments(group)
    _add_course_arguments(group)


def _add_similar_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--similar",
        action="store_true",
        help="also look for similar submissions, with our solution among them",
    )
    add(
        "--compare",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="as --similar, and compare with the submissions in this folder, too, for example "
        "last year's; may be repeated",
    )


def _add_course_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--course",
        type=Path,
        metavar="FILE",
        help="deadlines, extensions, late policy, roster and overrides (default: course.toml, if "
        "it exists)",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="LAB",
        help="grade this lab alone, and keep what is known of the others; may be repeated",
    )
    add(
        "--student",
        action="append",
        default=[],
        metavar="NAME",
        help="grade this student alone, and keep what is known of the others; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """The command `grade`."""
    if options.jobs < 1:
        raise InputError(f"--jobs {options.jobs}: --jobs takes 1 or more")
    if (options.seed or 0) < 0:
        raise InputError(f"--seed {options.seed}: --seed takes 0 or more")
    if options.seed is not None and options.seed_file:
        raise InputError(
            f"--seed {options.seed} with --seed-file {options.seed_file}: give one of them"
        )
    if options.unsafe and options.jail:
        raise InputError(f"--jail {options.jail} with --unsafe: give one of them")
    if options.what and Path(options.what).is_dir():
        grade_class(Path(options.what), options)
        return 0
    passed = grade_own(options.what, options)
    return 0 if passed or not options.strict else 1


def grade_own(word: str, options: argparse.Namespace) -> bool:
    """Grade one notebook and show a line per exercise; returns whether all passed."""
    name, path = _own_notebook(word)
    # A student's own code may do what the student may do.
    jail = choose(options.jail).name if options.jail else "none"
    seed = _seeds([name], options.seed, options.seed_file)[name]
    with console.status(f"Grading {path.name}: this takes some seconds"):
        one = classroom.grade_one(Submission("me", name, path), seed, jail)
    console.print(report.lab_table(name, one.results))
    if options.out:
        with _writing(options.out):
            report.write(one.rows, options.out)
    return all(result.status in ("passed", "visible checks passed") for result in one.results)


def _own_notebook(word: str) -> tuple[str, Path]:
    """The lab that a word means, and the path of its notebook."""
    path = Path(word)
    if path.suffix and path.is_file():
        return lab_of(path), path
    try:
        name = labs.resolve(word)
    except InputError as problem:
        kind = "no such folder or notebook, and " if os.sep in word or path.suffix else ""
        raise InputError(f"{kind}{problem}; or give a folder of submissions") from None
    fix = f"give its path, or a lab ({name[:2]})"
    if path.suffix != ".ipynb":
        path, fix = LABS / f"{name}.ipynb", "make labs builds the labs"
    if not path.is_file():
        raise InputError(f"there is no notebook {os.path.relpath(path)}: {fix}")
    return name, path


def _seeds(names: Iterable[str], seed: int | None, file: Path | None) -> dict[str, int]:
    """{lab: the seed of its checks}: the seed; or drawn from the secret in the file; or 0."""
    if seed is not None or file is None:
        return dict.fromkeys(names, seed or 0)
    try:
        secret = seeds.secret(file)
    except OSError as problem:
        raise InputError(f"the seed can't be kept in {file}: {problem.strerror}") from None
    return {name: seeds.of(secret, name) for name in names}


def grade_class(folder: Path, options: argparse.Namespace) -> None:
    """Grade every submission in a folder and write the results."""
    out = options.out
    if out is None:
        raise InputError(
            f"{folder} is a folder of submissions: say where the results go (--out RESULTS)"
        )
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: give a folder; it is made if it does not exist")
    course = _course(options)
    handed_in, strays = _find(folder, options)
    chosen = _chosen(options, handed_in, course)
    course = course.for_folders({one.student for one in handed_in})
    with _writing(out):
        marks.check({(one.student, one.lab) for one in handed_in}, course, out / "answers")
    handed_in = _with_deadlines(handed_in, course, folder, options.times)
    earlier = _earlier(options, {one.lab for one in handed_in})
    jail = choose("none" if options.unsafe else options.jail).name
    with _writing(out):
        kept = Store(out, fresh=options.fresh)
    seeds = _seeds(labs.names(), options.seed, options.seed_file or out / "seed")
    graded = _graded(handed_in, kept, seeds, jail, options, chosen)
    counting = classroom.counting(graded, course.late.percent)
    with _writing(out):
        before = changes.read(out)
        waiting = _not_graded(handed_in, graded, before)
        rows = marks.rows(counting, course, out / "answers", waiting)
        changed = changes.between(before, rows)
        alike = _similar(counting, earlier, options, course) if options.similar or earlier else []
        _write(counting, rows, course, out)
        page.write(counting, rows, course, out, changed, alike)
        if changed:
            changes.write(changed, out)
            what = "1 result" if len(changed) == 1 else f"{len(changed)} results"
            _say(f"{what} changed since the last run: {out / 'changes.csv'}")
    of_nobody = _of_nobody(handed_in, course, out)
    for line in (*_left_out(folder, handed_in, strays), *of_nobody, *_waits(waiting)):
        _say(line)
    _say(_ending(graded, counting, out))


def _not_graded(
    handed_in: Iterable[Submission], graded: Iterable[Graded], before: Iterable[report.Row]
) -> dict[tuple[str, str], list[report.Row]]:
    """{(student, lab): the rows of the run before} of new submissions that were not chosen."""
    there = {(one.submission.student, one.submission.lab) for one in graded}
    waiting: dict[tuple[str, str], list[report.Row]] = {
        (one.student, one.lab): [] for one in handed_in
    }
    for row in before:
        if (row["student"], row["lab"]) in waiting:
            waiting[row["student"], row["lab"]].append(row)
    return {key: rows for key, rows in waiting.items() if key not in there}


def _waits(waiting: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line on the submissions that this run did not grade. waiting: (student, lab) of each."""
    if which := [f"{student} {lab[:2]}" for student, lab in sorted(waiting)]:
        kept = "not graded now (what was known is kept)"
        yield f"{len(which)} new or changed, and {kept}: {_listed(which)}"


def _course(options: argparse.Namespace) -> settings.Settings:
    """The course's settings, with the deadlines of the command line in place of the file's."""
    path = options.course or Path("course.toml")
    if options.course and not path.is_file():
        raise InputError(f"--course {path}: there is no such file; it may hold\n{settings.EXAMPLE}")
    course = settings.read(path) if path.is_file() else settings.Settings()
    due = submissions.deadlines(options.deadline)
    return replace(course, deadlines={**course.deadlines, **due})


def _similar(
    counting: list[Graded],
    handed_in_earlier: list[Submission],
    options: argparse.Namespace,
    course: settings.Settings,
) -> list[page.Alike]:
    """Groups and pairs of similar answers, also to those of earlier classes; writes their page."""
    earlier = classroom.read_earlier(handed_in_earlier, options.jobs)
    if unreadable := len(handed_in_earlier) - len(earlier):
        _say(f"{unreadable} earlier submissions can't be read and were not compared")
    pairs, equal = similar.pairs(counting, earlier), similar.rings(counting, earlier)
    counts = Counter(one.submission.student.rpartition("/")[0] for one in earlier)
    similar.write(pairs, options.out, equal, counts, course.person)
    _say(f"{len(equal)} groups of equal answers")
    _say(f"{len(pairs)} pairs of similar submissions: {options.out / 'similar.html'}")
    shown = [(pair.lab, set(pair.students)) for pair in pairs]
    rings = [
        page.Alike(
            ring.lab,
            ring.students,
            1.0,
            equal=True,
            identical=ring.identical,
            has_lines=any(lab == ring.lab and who <= {*ring.students} for lab, who in shown),
        )
        for ring in equal
    ]
    known = [(ring.lab, set(ring.students)) for ring in equal]
    return rings + [
        page.Alike(pair.lab, pair.students, pair.share)
        for pair in pairs
        if not any(pair.lab == lab and ring.issuperset(pair.students) for lab, ring in known)
    ]


def _earlier(options: argparse.Namespace, names: Set[str]) -> list[Submission]:
    """What earlier classes handed in for these labs."""
    found: dict[Path, list[Submission]] = {}
    for folder in options.compare:
        if not folder.is_dir():
            raise InputError(f"--compare {folder}: there is no such folder")
        found[folder] = [one for one in submissions.earlier(folder) if one.lab in names]
        if not found[folder]:
            raise InputError(
                f"--compare {folder}: it holds no notebook of {', '.join(sorted(names))}; they are "
                f"{folder}/<student>/NN_noun.ipynb, or {folder}/NN_noun.ipynb"
            )
    return [one for group in found.values() for one in group]


def _find(folder: Path, options: argparse.Namespace) -> tuple[list[Submission], list[Path]]:
    """(the submissions that count, notebooks that belong to no lab)."""
    try:
        handed_in, strays = submissions.find(folder, {}, options.count, options.times or "files")
    except PermissionError as problem:
        raise InputError(f"no permission to read {problem.filename}") from None
    if not handed_in:
        raise InputError(
            f"{folder} holds no submission: they are {folder}/<student>/NN_noun.ipynb, with "
            f"NN_noun one of {', '.join(labs.names())}"
        )
    return [one for one in handed_in if one.counts], strays


def _expect_times(folder: Path) -> None:
    """InputError if the files' times are those of unpacking: all would be late, or nobody."""
    if (folder / submissions.WITHOUT_TIMES).exists():
        raise InputError(
            f"{folder} was unpacked from Canvas's zip, which does not say when a notebook was "
            "handed in, and there are deadlines: give --times none to grade without lateness, as "
            "Canvas has a late policy of its own, or --times files to take the time of unpacking"
        )


def _with_deadlines(
    handed_in: Sequence[Submission], course: settings.Settings, folder: Path, times: str | None
) -> list[Submission]:
    """The submissions with how late they are. Says whose extension is for nobody's folder."""
    students = {one.student for one in handed_in}
    for name in sorted(course.extensions.keys() - students - course.roster.people.keys()):
        hint = did_you_mean(name, students)
        _say(f"an extension is for {name}, and no folder has this name{hint}")
    due_s = [course.due_s(one.student, one.lab) for one in handed_in]
    if times == "none":
        due_s = [None] * len(handed_in)
    elif not times and any(due_s):
        _expect_times(folder)
    return list(map(submissions.with_deadline, handed_in, due_s))


def _chosen(
    options: argparse.Namespace, handed_in: Sequence[Submission], course: settings.Settings
) -> Callable[[Submission], bool]:
    """Whether --only and --student let a submission be graded now.

    course: with the roster's own names. InputError if one of them chooses nothing.
    """
    folders = {one.student for one in handed_in}
    only = {labs.resolve(word) for word in options.only}
    students = course.folders_of(options.student, folders)
    for student in sorted(students - folders):
        if student in course.roster.people:
            who = course.roster.name(student)
            raise InputError(f"--student {student}: {who} is on the roster and handed in nothing")
        hint = did_you_mean(student, folders)
        raise InputError(f"--student {student}: no folder in {options.what} has this name{hint}")
    for name in sorted(only - {one.lab for one in handed_in}):
        raise InputError(f"--only {name[:2]}: nobody handed in {name}")

    def is_chosen(one: Submission) -> bool:
        return (not only or one.lab in only) and (not students or one.student in students)

    if not any(map(is_chosen, handed_in)):
        who, what = (", ".join(sorted(words)) for words in (students, only))
        raise InputError(f"--only with --student: {who} handed in nothing for {what}")
    return is_chosen


def _graded(
    handed_in: list[Submission],
    kept: Store,
    seeds: dict[str, int],
    jail: str,
    options: argparse.Namespace,
    chosen: Callable[[Submission], bool],
) -> list[Graded]:
    """Grade with a progress bar, unless all is known."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar, _writing(options.out):
        task = bar.add_task("reading", total=len(handed_in))

        def progress(done: int, total: int) -> None:
            bar.update(task, description="grading", completed=done, total=total, visible=total > 0)

        return classroom.grade_class(
            handed_in,
            kept,
            seeds,
            min(options.jobs, len(handed_in)),
            jail,
            hidden=[options.what, options.out, *filter(None, [options.seed_file])],
            scheduler=options.scheduler,
            progress=progress,
            chosen=chosen,
        )


def _write(
    counting: list[Graded], rows: list[report.Row], course: settings.Settings, out: Path
) -> None:
    """The results as files, and the summary also on the screen."""
    report.write(rows, out)
    report.write_checks(counting, out)
    marks.write(rows, course, out)
    feedback.write_students(counting, out / "feedback", rows, course.roster.name, course.zone)
    feedback.write_answers(counting, out / "answers", rows, course.person)
    looks = look.at(counting, course.strangers({one.submission.student for one in counting}))
    exercises = [row for row in rows if row["exercise"][0].isdigit()]
    with open(out / "summary.txt", "w", encoding="utf-8") as file:
        for screen in (console, Console(file=file, width=120)):
            _summarise(screen, counting, looks, exercises)


def _summarise(
    screen: Console, graded: list[Graded], looks: list[look.Look], rows: list[report.Row]
) -> None:
    """How the points are distributed, what was hard, which mistakes were made, who needs a look."""
    screen.print(report.distribution(rows))
    screen.print(
        report.class_table(sorted(rows, key=lambda row: (row["lab"], _place(row["exercise"]))))
    )
    late = sum(one.only_late for one in looks)
    if late > MANY:  # they would hide the others
        looks = [one for one in looks if not one.only_late]
    lines = [(one.student, one.lab[:2], "; ".join(one.reasons)) for one in looks]
    for table in (report.mistakes_table(graded), report.look_table(lines)):
        if table.row_count:
            screen.print(table)
    if late > MANY:
        screen.print(f"{late} more were late: results.csv says by how much\n")


def _place(exercise: str) -> list[int]:
    return [int(number) for number in exercise.split()[0].split(".")]


def _left_out(folder: Path, handed_in: list[Submission], strays: list[Path]) -> Iterator[str]:
    """Lines on what is in the folder and was not graded."""
    for stray in strays[:MOST_STRAYS]:
        why = "links are not followed" if stray.is_symlink() else "no lab has that name"
        yield f"left out: {escaped(os.fsencode(stray).decode(errors='replace'))} ({why})"
    if (more := len(strays) - MOST_STRAYS) > 0:
        yield f"left out: {more:,} more (links, or no lab has their names)"
    for path, why in submissions.left_out(folder):
        yield f"left out: {shown(path.name)} ({why})"
    for loose in sorted(folder.glob("*.ipynb")):
        yield f"left out: {shown(loose.name)} (it is not in a student's folder)"
    folders = {
        shown(path.name)
        for path in folder.iterdir()
        if path.is_dir() and not path.is_symlink() and not path.name.startswith((".", "__MACOSX"))
    }
    if empty := sorted(folders - {one.student for one in handed_in}):
        yield f"nothing to grade in {len(empty)} folders: {_listed(empty)}"


def _of_nobody(
    handed_in: Iterable[Submission], course: settings.Settings, out: Path
) -> Iterator[str]:
    """Lines on folders of nobody on the roster, and on pages of people who have no folder now."""
    students = {one.student for one in handed_in}
    if strangers := course.strangers(students):
        yield f"not on the roster: {_listed(strangers)}"
    pages = {path.name for path in (out / "feedback").glob("*.html")}
    if old := sorted(pages - set(map(feedback.page_name, students))):
        yield f"{out / 'feedback'} has pages of an earlier run, for nobody here: {_listed(old)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return ", ".join(names[:MANY]) + more


def _ending(graded: list[Graded], counting: list[Graded], out: Path) -> str:
    students = submissions.count_of({one.submission.student for one in counting})
    all_graded = "1 submission" if len(graded) == 1 else f"{len(graded)} submissions"
    before = sum(one.kept for one in graded)
    kept = f", {before} of them kept from before" if before else ""
    files = f"{out / 'index.html'}, {out / 'marks.csv'}"
    return f"{all_graded} of {students}{kept}: {files}"


def _say(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn a full disk or missing permission into a sentence that names the folder of results."""
    try:
        yield
    except OSError as problem:
        raise CommandError(f"the results can't be written to {out}: {problem.strerror}") from None
