"""Docstrings, which are Markdown, as reStructuredText: Sphinx's autodoc reads nothing else."""

import re
from collections.abc import Iterator, Sequence

CODE = re.compile(r"`([^`]+)`")
SPECIAL = re.compile(r"([\\*|]|_(?!\w))")  # what begins or ends a mark; `__`'s first _ is a word's
COLUMNS = re.compile(r"^\S.* {2}\S")  # a command, and what it does
LINK = re.compile(r"\[([^\]]+)\]\((https?://[^)\s]+)\)")


def as_rest(lines: Sequence[str]) -> list[str]:
    """The same text: paragraphs, lists with "- ", code in backticks or after four spaces, links.

    Lines in columns, such as commands and what they do, stay as they are, too.
    """
    return list(_blocks(lines))


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    before, in_code, in_list = "", False, False
    for line in lines:
        text = line.strip()
        if not text:
            yield ""
        elif (line.startswith("    ") or COLUMNS.match(line)) and (in_code or not before):
            if not in_code:
                yield from ("::", "")
            in_code = True
            yield line if line.startswith("    ") else f"    {line}"
        else:
            item, begins = text.startswith("- "), not before or in_code
            was_in_list = in_list and not begins
            in_list = item or (was_in_list and line.startswith("  "))
            if before and (in_code or in_list != was_in_list):
                yield ""
            in_code = False
            line = _inline(text[2:] if item else text)
            line = f"- {line}" if item else f"  {line}" if in_list else line
            yield line
        before = line if text else ""


def _inline(text: str) -> str:
    """A line with its code, links and special characters as reStructuredText has them."""
    parts = CODE.split(text)  # text, code, text, ...
    parts[::2] = [LINK.sub(r"`\1 <\2>`__", SPECIAL.sub(r"\\\1", part)) for part in parts[::2]]
    parts[1::2] = [f"``{code.strip()}``" for code in parts[1::2]]
    joined = parts[0]
    for code, after in zip(parts[1::2], parts[2::2], strict=True):
        if joined and not joined[-1].isspace():
            joined += "\\ "
        joined += code
        joined += "\\ " + after if after and after[0].isalnum() else after
    return joined
