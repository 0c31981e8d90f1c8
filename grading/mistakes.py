"""Known mistakes: the sentences of a lab's checks, and which of them a message ends in."""

import ast
import functools
import re


def known(exercise, message):
    """The sentence of the exercise's checks that a message is or ends in: the mistake that the answer looks like, or ""."""
    last = message.rpartition("\n")[2]
    sentences = _sentences(tuple(check.source for check in exercise.checks))
    return last if any(sentence.fullmatch(last) for sentence in sentences) else ""


@functools.cache
def _sentences(sources):
    """What the checks say in words of their own: strings of three words or more, as patterns."""
    found = []
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                re.escape(part.value) if isinstance(part, ast.Constant) else ".*"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.escape(node.value)
        else:
            continue
        words = re.sub(r"\\.|\.\*", " ", text).split()
        if len(words) >= 3:
            found.append(re.compile(text))
    return found
