"""Known mistakes: which sentence of a check a message begins with, or ends in.

A check gives a sentence to agree(..., mistakes=...) or to expect; either may be an f-string. So the
sentences are read from the text of the checks, and of the modules of expected values that they
import: this serves all kinds, and also messages that were kept from an earlier run.
"""

import ast
import functools
import re
from collections.abc import Iterable

from common.checks import obfuscated
from common.paths import ROOT, of_checks
from grading.source.labs import Exercise

EXPECTED = re.compile(r"from (common\.lessons\.\w+(?:\.expected)?(?:\.\w+)?) import (\w+)")
MIN_WORDS = 3  # shorter strings are names and formats


def known(exercise: Exercise, message: str) -> str:
    """The sentence of the exercise's checks that the message begins with, or ends in, or "".

    It is the same whatever values came, as a mistake that several make is; else it only names them.
    """
    mistake = constant(exercise, message)
    return mistake if mistake.endswith((".", "!", "?")) else ""


def constant(exercise: Exercise, message: str) -> str:
    """As `known`, but it may be a label, and no sentence."""
    sentences = _sentences(tuple(check.source for check in exercise.checks))
    return _found([one for one in sentences if ".*" not in one.pattern], message)


def _found(sentences: Iterable[re.Pattern[str]], message: str) -> str:
    lines = message.split("\n")
    for line in dict.fromkeys((lines[0], lines[-1])):
        if any(sentence.fullmatch(line) for sentence in sentences):
            return line
    return ""


@functools.cache
def _sentences(sources: tuple[str, ...]) -> list[re.Pattern[str]]:
    """The strings in the checks, as patterns that allow anything where a value is filled in."""
    found = {match.groups() for source in sources for match in EXPECTED.finditer(source)}
    modules = {module for pair in found for module in (pair[0], ".".join(pair))}
    files = {ROOT / f"{module.replace('.', '/')}.py" for module in modules}
    texts = [*sources, *map(obfuscated.read, sorted(files & set(of_checks())))]
    return [sentence for text in texts for sentence in _in_text(text)]


@functools.cache
def _in_text(text: str) -> list[re.Pattern[str]]:
    patterns = filter(None, map(_pattern, ast.walk(ast.parse(text))))
    return [
        re.compile(p) for p in patterns if len(re.sub(r"\\.|\.\*", " ", p).split()) >= MIN_WORDS
    ]


def _pattern(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(part) or ".*" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    return ""
