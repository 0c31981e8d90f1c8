"""Canvas: return the feedback pages in bulk, in the zip file that its assignment page takes.

Canvas's "Upload Submissions" attaches each file to a student by two numbers in the file's name, the
ids of the student and of the submitted file. So a page gets the name that its notebook had when
Canvas gave it to you: lovelaceada_11_345678_01_strides.ipynb becomes ..._01_strides.html.
"""

import zipfile
from pathlib import Path

from common.files import whole
from grading import feedback
from grading.errors import InputError
from grading.lms import archives, canvas_names
from grading.submissions import lab_of

DATE = (1980, 1, 1, 0, 0, 0)


def write(archive: Path, results: Path) -> tuple[Path, int, list[str]]:
    """Write the zip file; returns (its path, how many pages it holds, the students without one).

    archive: what "Download Submissions" gave. results: the folder with the pages; the zip file gets
    the number of the lab that most files in `archive` are for: other labs have their own.
    """
    lab, names = _last_of_each(archive)
    path = results / f"canvas_feedback_{lab[:2]}.zip"
    missing = []
    count = 0
    with whole(path) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
        for student, name in sorted(names.items()):
            page = results / "feedback" / feedback.page_name(student)
            if not page.is_file():
                missing.append(student)
                continue
            info = zipfile.ZipInfo(f"{name[: -len('.ipynb')]}.html", DATE)
            out.writestr(info, page.read_bytes(), zipfile.ZIP_DEFLATED)
            count += 1
    return path, count, missing


def _last_of_each(archive: Path) -> tuple[str, dict[str, str]]:
    """(the lab that most notebooks are for, {student's id: their last one in the zip file})."""
    with archives.opened(archive) as files:
        every = files.namelist()
    counts = canvas_names.labs_of(archive, every)
    found: dict[str, str] = {}
    for name in sorted(every, key=_attachment):
        try:
            student, notebook = canvas_names.parsed(name)
        except InputError:
            continue  # unpack says why
        if lab_of(notebook):
            found[student] = name
    if not found:
        raise InputError(f"{archive} has no notebook with a lab's name, NN_noun.ipynb")
    return max(sorted(counts), key=counts.__getitem__), found


def _attachment(name: str) -> list[int]:
    """What Canvas counts up: the id of a submitted file."""
    return [int(part) for part in name.split("_") if part.isdecimal()][1:2]
