"""Canvas: return the feedback pages in bulk, in the zip file that its assignment page takes.

Canvas's "Upload Submissions" attaches each file to a student by two numbers in the file's name, the
ids of the student and of the submitted file. So a page gets the name that its notebook had when
Canvas gave it to you: lovelaceada_11_345678_01_strides.ipynb becomes ..._01_strides.html.
"""

import re
import zipfile
from pathlib import Path

from common.files import whole
from grading import feedback
from grading.errors import InputError
from grading.lms import archives
from grading.source import labs

DATE = (1980, 1, 1, 0, 0, 0)


def write(archive: Path, pages: Path, path: Path, given: re.Pattern[str]) -> tuple[int, list[str]]:
    """Write the zip file; returns (how many pages it holds, the students without a page).

    archive: what "Download Submissions" gave. pages: the grader's folder `feedback`. given: the
    names that Canvas gives, with the student's id and the notebook's own name.
    """
    names = _last_of_each(archive, given)
    missing = []
    count = 0
    with whole(path) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
        for student, name in sorted(names.items()):
            page = pages / feedback.page_name(student)
            if not page.is_file():
                missing.append(student)
                continue
            info = zipfile.ZipInfo(f"{name.removesuffix('.ipynb')}.html", DATE)
            out.writestr(info, page.read_bytes(), zipfile.ZIP_DEFLATED)
            count += 1
    return count, missing


def _last_of_each(archive: Path, given: re.Pattern[str]) -> dict[str, str]:
    """{student's id: the name of their last notebook of a lab in the zip file}."""
    with archives.opened(archive) as files:
        every = files.namelist()
    found: dict[str, str] = {}
    for name in sorted(every, key=_attachment):
        match = given.fullmatch(name)
        if match and is_lab(match[2]) and not has_two_readings(match[2]):
            found[match[1]] = name
    if not found:
        raise InputError(
            f"{archive} has no notebook with a name that Canvas gives: is it what Download "
            "Submissions gave, unchanged?"
        )
    return found


def _attachment(name: str) -> list[int]:
    """What Canvas counts up: the id of a submitted file."""
    return [int(part) for part in name.split("_") if part.isdecimal()][1:2]


def is_lab(notebook: str) -> bool:
    """Whether a file has the name of a lab's notebook."""
    try:
        return bool(labs.resolve(notebook))
    except InputError:
        return False


def has_two_readings(notebook: str) -> bool:
    """Whether a notebook's name goes on as Canvas's names do, "..._12_345679_01_strides.ipynb".

    Then the ids before it may be part of a name that a student chose, to hand in for another.
    """
    later = re.finditer(r"(?=_[0-9]+_[0-9]+_([^/]+\.ipynb))", f"_{notebook}")
    return any(is_lab(match[1]) for match in later)
