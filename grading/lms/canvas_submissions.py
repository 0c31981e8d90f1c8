"""Canvas: lay out the zip file of "Download Submissions" for the grader, and replace no work."""

import contextlib
import errno
import zipfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grading.errors import InputError
from grading.lms import archives, canvas_names, folders
from grading.source import notebook
from grading.source.notebook import MAX_NOTEBOOK_BYTES
from grading.submissions import WITHOUT_TIMES, escaped, is_notebook, lab_of

NO_TIMES = "Canvas's zip file does not say when a notebook was handed in.\n"
PIECE_BYTES = 1 << 20  # of a file that is unpacked
ENCRYPTED = 1  # the bit of a zip file's flags
IMPOSSIBLE = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)


@dataclass
class Unpacked:
    """What became of the files of a zip file."""

    students: set[str] = field(default_factory=set)  # Canvas's ids
    left_out: list[tuple[str, str]] = field(default_factory=list)  # (name in the zip file, why)
    nameless: list[Path] = field(default_factory=list)  # unpacked, but named for no lab


class _NotUnpackedError(Exception):
    """A notebook can't be unpacked. The text is one of notebook.NOT_UNPACKED."""


def unpack(archive: Path, folder: Path, wanted: Collection[str] = ()) -> Unpacked:
    """Write each notebook of Canvas's zip file to folder/<Canvas id>/<its own name>.

    A file that is there already with other content stays. In place of a notebook that can't be
    unpacked, or of a student's only file if it is none, comes a file that tells the grader why.

    wanted: the labs to unpack; () for the only one that the zip file has. InputError if it has
    several, or none of these.
    """
    done, laid = Unpacked(), set[Path]()
    with archives.opened(archive) as files:
        found = canvas_names.labs_of(archive, files.namelist())
        _expect(archive, found, wanted)
        for info in files.infolist():
            try:
                student, name = canvas_names.parsed(info.filename)
                lab, path = lab_of(name), folder / student / name
                if wanted and lab and lab not in wanted:
                    raise InputError(f"it is for lab {lab}")
                if path in laid:
                    raise InputError("an earlier file in the zip file is of the same student")
                laid.add(path)
                done.students.add(student)
                _extract(files, info, path)
                done.nameless += [] if lab else [path]
            except InputError as why:
                done.left_out.append((escaped(info.filename), escaped(str(why))))
        if len(labs := wanted or found) == 1:
            others = _with_other_files(files.namelist()) - done.students
            for student in others:
                with contextlib.suppress(InputError):  # an earlier zip file had their notebook
                    folders.stand_in(folder / student / f"{min(labs)}.ipynb", notebook.OTHER_KIND)
            done.students |= others
    if done.students:
        (folder / WITHOUT_TIMES).write_text(NO_TIMES, encoding="utf-8")
    return done


def _with_other_files(names: Iterable[str]) -> set[str]:
    """The ids of students who handed in a file that is no notebook."""
    return {canvas_names.owner(name) for name in names if not is_notebook(Path(name))} - {""}


def _expect(archive: Path, found: Collection[str], wanted: Collection[str]) -> None:
    """InputError unless the zip file holds the wanted labs, or one lab if none is named.

    A later assignment must bring no new work for an earlier lab.
    """
    names = ", ".join(sorted(found))
    if missing := set(wanted) - set(found):
        holds = f"it holds {names}" if found else "no file in it has a lab's name"
        raise InputError(f"{archive} has no notebook for lab {min(missing)}: {holds}")
    if len(found) > 1 and not wanted:
        raise InputError(
            f"{archive} has notebooks for several labs, {names}: say which of them the assignment "
            f"is for, with --lab {max(found)[:2]} (it may be repeated)"
        )


def _extract(files: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """Unpack a file; InputError says why it is not there."""
    try:
        folders.lay(path, _pieces(files, info))
    except _NotUnpackedError as problem:
        folders.stand_in(path, str(problem))
        raise InputError(f"it {problem}") from None
    except OSError as problem:
        if problem.errno not in IMPOSSIBLE:
            raise  # a full disk
        raise InputError("no file can have this name") from None


def _pieces(files: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """The unpacked bytes of a file of the archive; _NotUnpackedError says why it has none."""
    if info.flag_bits & ENCRYPTED:
        raise _NotUnpackedError(notebook.ENCRYPTED)
    size = 0
    try:
        with files.open(info) as packed:
            while piece := packed.read(PIECE_BYTES):
                yield piece
                size += len(piece)
                if size > MAX_NOTEBOOK_BYTES:
                    raise _NotUnpackedError(notebook.TOO_LARGE)
    except NotImplementedError:
        raise _NotUnpackedError(notebook.UNKNOWN_PACKING) from None
    except (*archives.BROKEN, OSError):
        raise _NotUnpackedError(notebook.DAMAGED) from None
