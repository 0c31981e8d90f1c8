"""What a person meant by a line of course.toml that TOML refuses, and how to write it."""

import re

from grading.submissions import escaped

BARE = re.compile(r"[\w-]+", re.ASCII)  # a name that needs no quotation marks
KEY = re.compile(r"""\s*(?:[\w-]+|"[^"]*"|'[^']*')(?:\.(?:[\w-]+|"[^"]*"|'[^']*'))*\s*""", re.ASCII)
DATE = re.compile(r"\d+[-./]\d+[-./]\d+|\d\d:\d\d")
CURLY = str.maketrans("“”„‟«»‘’‚", '"""""""' + '""')
AS_TOML = re.compile(  # a day, or a time, in the form that it must have
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)?)?"
)
TIME = "a time has no quotation marks, and has seconds: 2026-11-20T18:00:00"


def sentence(text: str, problem: str) -> str:
    """Where the first slip is, and how to write that line. problem: what tomllib says of it."""
    lines = text.splitlines() or [""]
    place = re.search(r"at line (\d+)", problem)
    number = min(int(place[1]), len(lines)) if place else _open_quote(lines)
    line = lines[number - 1].strip()
    return (
        f"line {number}, {escaped(line[:80])}: {_fix(line, _table(lines[: number - 1]), problem)}"
    )


def quoted(name: str) -> str:
    """The name as TOML accepts it: an address needs quotation marks."""
    if BARE.fullmatch(name):
        return name
    return '"{}"'.format(name.replace('"', ""))


def _open_quote(lines: list[str]) -> int:
    """The first line with a quotation mark that is not closed, else the last one."""
    is_open = (n for n, line in enumerate(lines, 1) if line.count('"') % 2 or line.count("'") % 2)
    return next(is_open, len(lines))


def _table(lines: list[str]) -> str:
    """The name of the table that the line below these is in."""
    headers = (re.match(r"\s*\[+([^\]]*)", line) for line in reversed(lines))
    return next((header[1].strip() for header in headers if header), "")


def _fix(line: str, table: str, problem: str) -> str:
    if twice := re.search(r"Cannot declare (.*) twice", problem):
        name = ".".join(re.findall(r"'([^']*)'", twice[1]))
        return f"[{name}] is there twice: put its lines together"
    if "Cannot overwrite" in problem:
        return "this is there twice: remove one of them"
    if line.translate(CURLY) != line:
        return f"use plain quotation marks: {line.translate(CURLY)}"
    if line.startswith("["):
        return _header_fix(line)
    if line.startswith(("//", ";", "--")):
        return "a comment begins with #"
    key, equals, value = line.partition("=")
    if not equals:
        return "write NAME = VALUE, with = between them"
    if not KEY.fullmatch(key):
        return _key_fix(key.strip(), table)
    return _value_fix(key.strip(), re.sub(r"\s+#.*", "", value).strip(), table) or problem


def _header_fix(line: str) -> str:
    inside = re.sub(r"\]*\s*(?:#.*)?$", "", line).lstrip("[").strip()
    first, dot, name = inside.partition(".")
    name = name.strip("\"' ")
    proposed = f"[{first}.{quoted(name)}]" if dot else f"[{quoted(inside)}]"
    if "]" not in line or proposed == line:
        return f"a table's name stands between [ and ]: {proposed}"
    return f"a name with other characters than a to z, 0 to 9, - and _ needs quotes: {proposed}"


def _key_fix(key: str, table: str) -> str:
    if table == "extensions":
        student = key.partition(" ")[0] if " = " in key else key
        return f"write [extensions.{quoted(student)}] above the times of this student"
    return f"{key} is no name that TOML accepts: write one word, or put it in quotation marks"


def _value_fix(key: str, value: str, table: str) -> str:
    """How to write a value; "" if nobody knows."""
    if not value:
        return f"a value is missing: {key} = ..."
    is_time = table == "deadlines" or table.startswith("extensions")
    if value.count('"') % 2 or value.count("'") % 2:
        return TIME if is_time else "a quotation mark is missing"
    if "\\" in value:
        return f"write / in place of \\ in a file's name: {key} = {value.replace(chr(92), '/')}"
    if "=" in value and value[0] not in "[{\"'":
        return "write each NAME = VALUE in a line of its own"
    if value[0] in "[{":
        return "between two values stands a comma; or write each in a line of its own"
    if is_time or DATE.search(value):
        return "there is no such day or time" if AS_TOML.fullmatch(value) else TIME
    if re.fullmatch(r"\d+,\d+", value):
        return f"a number has a point, not a comma: {key} = {value.replace(',', '.')}"
    if number := re.match(r"\d+(?:\.\d+)?", value):
        return f"write the number alone: {key} = {number[0]}"
    if value[0] not in "\"'":
        return f'a text needs quotation marks: {key} = "{value}"'
    return ""
