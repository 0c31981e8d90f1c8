"""Canvas: the names of the files in the zip file of "Download Submissions".

lovelaceada_LATE_11_345678_01_strides-2.ipynb: the student's name, LATE if Canvas says so, the
student's id, the file's id, and the name that the file had. (The class ContentZipper in Canvas's
lib/content_zipper.rb writes them.)
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from grading.errors import InputError
from grading.submissions import is_notebook, lab_of

GIVEN = re.compile(r"[^/]*?_([0-9]+)_[0-9]+_([^/]+)")  # of "???", no name is left
TYPED = re.compile(r"[^/]*?_([0-9]+)_(?:text|link)\.html")  # in Canvas, in place of a file
# An anonymous assignment has a random word in place of the name and the student's id.
ANONYMOUS = re.compile(r"(?:LATE_)?anon_[0-9A-Za-z]{5}_[0-9]+_[^/]+")
MAX_NAME = 255  # of a file, in most file systems
TWO_IDS = re.compile(r"(?:^|_)[0-9]+_[0-9]+_")  # in what follows the ids: which are the student's?


def parsed(name: str) -> tuple[str, str]:
    """(the student's id, the notebook's own name); InputError says why a file is not used."""
    if not is_notebook(Path(name)):
        raise InputError("it is not a notebook, .ipynb")
    if len(name) > MAX_NAME:  # reading it takes the square of its length
        raise InputError("no file can have this name")
    if ANONYMOUS.fullmatch(name):
        raise InputError(
            "the assignment is anonymous, so the name does not say whose it is: turn that off in "
            "Canvas, and download again"
        )
    match = GIVEN.fullmatch(name)
    if not match:
        raise InputError("Canvas gives no such name: it is NAME_ID_FILE_NN_noun.ipynb")
    if _has_two_readings(match[2]):
        raise InputError(
            "two students' ids can be read in its name: look in Canvas whose it is, and copy it "
            "to that student's folder"
        )
    return match[1], match[2]


def owner(name: str) -> str:
    """The id of the student who handed in a file of any kind; "" if its name does not say it."""
    if ANONYMOUS.fullmatch(name):
        return ""
    if typed := TYPED.fullmatch(name):
        return typed[1]
    match = GIVEN.fullmatch(name)
    return match[1] if match and not TWO_IDS.search(match[2]) else ""


def labs_of(archive: Path, names: Iterable[str]) -> Counter[str]:
    """{lab: how many files of a zip file are named for it}; InputError if Canvas gave none."""
    given, found = False, Counter[str]()
    for name in names:
        try:
            _, notebook = parsed(name)
        except InputError:
            continue
        given = True
        if lab := lab_of(notebook):
            found[lab] += 1
    if not given:
        raise InputError(
            f"{archive} has no notebook with a name that Canvas gives: is it what Download "
            "Submissions gave, unchanged?"
        )
    return found


def _has_two_readings(notebook: str) -> bool:
    """Whether a notebook's name goes on as Canvas's names do, "..._12_345679_01_strides.ipynb".

    Then the ids before it may be part of a name that a student chose, to hand in for another. The
    number that was taken for the file's id may be the student's ("x_11" is a name, too).
    """
    later = re.finditer(r"(?=_[0-9]+_([0-9]+)_([^/]+))", f"_0_{notebook}")
    # In _345678_01_strides.ipynb, 01 is the lab's number, and no id.
    return any((lab := lab_of(match[2])) and int(match[1]) != int(lab[:2]) for match in later)
