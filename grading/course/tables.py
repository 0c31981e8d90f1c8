"""CSV files that people write in a spreadsheet: read with the line of what can't be used."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.files import replace
from grading.errors import InputError
from grading.report import plain

Line = tuple[int, dict[str, str]]  # the number of the line in the file, and its cells
ZIP, OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"  # how these files begin
OF_CANVAS = re.compile(r" (score|points|grade)\b")  # totals of two groups of one name


def read(path: Path, needed: Collection[str]) -> list[Line]:
    """The lines of a CSV file with these columns, commas or semicolons between them.

    InputError if a column is missing, or as `lines` raises it. A quote that our own files put
    before a formula is removed.
    """
    try:
        reader = opened(path)
    except FileNotFoundError:
        columns = ", ".join(needed) or "a line per student, and student, name, section above them"
        raise InputError(f"{path} does not exist: make it, with {columns}") from None
    columns = {(name or "").strip().lower(): name for name in reader.fieldnames or []}
    if missing := [name for name in needed if name not in columns]:
        raise InputError(
            f"{path} has no column {missing[0]}: its first line names the columns, "
            f"{', '.join(needed)}"
        )
    return [
        (number, {key: _cell(row.get(name)) for key, name in columns.items()})
        for number, row in lines(reader, path)
        if any(isinstance(value, str) and value.strip() for value in row.values())
    ]


def lines(reader: "csv.DictReader[str]", path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line with its number. InputError if one has more cells than there are columns: a text
    with a comma was not quoted, and the cells after it are in the wrong columns."""
    begin = reader.line_num + 1  # of the row that is read next
    try:
        for row in reader:
            more = row.pop(None, [])  # type: ignore[call-overload]
            if any(cell.strip() for cell in more):
                count = len(reader.fieldnames or [])
                raise InputError(
                    f"{path}, line {reader.line_num} has {count + len(more)} cells for {count} "
                    f'columns: a text that holds "{reader.reader.dialect.delimiter}" needs '
                    "quotation marks around it"
                )
            yield reader.line_num, row
            begin = reader.line_num + 1
    except csv.Error as problem:
        raise _not_whole(path, begin, problem) from None


def _not_whole(path: Path, line: int, problem: csv.Error) -> InputError:
    """csv's error as a sentence. A quotation mark that is never closed would take all the lines
    below it into its cell."""
    if "limit" in str(problem):
        why = f"a cell has more than {csv.field_size_limit():,} characters"
    else:
        why = 'a cell that begins with " ends with ", and has "" for each one inside'
    return InputError(f"{path}, line {line}: {why}")


def opened(path: Path) -> "csv.DictReader[str]":
    """The file's lines, with what spreadsheets write: commas, semicolons or tabs between cells, and
    text in UTF-8, in UTF-16, or as Windows wrote it. InputError if it is no text at all, or if its
    first line does not name the columns, each by its own name."""
    data = path.read_bytes()
    if data.startswith((ZIP, OLD_EXCEL)):
        kind = "a zip file or an Excel workbook" if data.startswith(ZIP) else "an Excel workbook"
        raise InputError(f"{path} is {kind}: save the table as CSV, and give that file")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", errors="replace")
    first = re.sub(r'"[^"]*"', "", text).partition("\n")[0]
    reader = csv.DictReader(
        io.StringIO(text, newline=""),
        delimiter=max(",;\t", key=first.count),
        skipinitialspace=True,
        strict=True,
    )
    try:
        names = [name.strip() for name in reader.fieldnames or []]
    except csv.Error as problem:
        raise _not_whole(path, 1, problem) from None
    if text.strip() and not any(names):
        raise InputError(f"{path}: its first line is empty, and it must name the columns")
    for name, count in Counter(map(str.lower, filter(None, names))).items():
        if count > 1 and not OF_CANVAS.search(name):
            raise InputError(f"{path} has {count} columns {name}: remove or rename all but one")
    return reader


def _cell(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    return text[1:] if text[:1] == "'" and plain(text[1:]) == text else text


def as_read(text: str) -> str:
    """What `read` gives for a cell in which `write` wrote this text."""
    return _cell(plain(text))


def number(text: str, where: str) -> float:
    """A number that may have a comma for a point; InputError names the place."""
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number of points") from None
    if not 0 <= value < 1e6:
        raise InputError(f"{where}: {text!r}: points are 0 or more")
    return value


def write(path: Path, columns: Collection[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A CSV file, whole or not at all; no cell is a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), extrasaction="ignore")
    writer.writeheader()
    writer.writerows({key: plain(row.get(key, "")) for key in columns} for row in rows)
    replace(path, text.getvalue())
