"""Submissions alike: pairs of students whose answers share more than the lab and the class explain.

By winnowed fingerprints of the code with its names levelled (copydetect, which finds a copy with renamed variables). What the
lab gives, and what many students wrote, says nothing about two of them and is left out.
"""

import io
from collections import Counter
from dataclasses import dataclass

from common.files import replace

TOKENS = 25  # the shortest stretch of levelled code that counts
SHARE = 0.5  # of the shorter one's code
MANY = 0.1  # of the class, and at least 3 students: so many had the same idea


@dataclass(frozen=True)
class Pair:
    """Two students' answers to a lab. share: of the shorter one's code; lines: [(number, text)] of each that are alike."""

    lab: str
    students: tuple
    share: float
    lines: tuple


def pairs(graded):
    """[Pair], those that share most first. graded: [classroom.Graded]. ImportError without copydetect."""
    from copydetect import CodeFingerprint, compare_files

    found = []
    for lab in {one.lab.name: one.lab for one in graded}.values():
        code = {one.submission.student: _code(one) for one in graded if one.lab is lab}
        code = {student: text for student, text in code.items() if text}
        common = _common(lab, code.values())
        prints = {
            student: CodeFingerprint(
                "answers.py", TOKENS, 1, boilerplate=common, fp=io.StringIO(text)
            )
            for student, text in code.items()
        }
        students = [student for student in sorted(prints) if prints[student].hashes]
        for i, first in enumerate(students):
            for second in students[i + 1 :]:
                if not prints[first].hashes & prints[second].hashes:
                    continue
                _, shares, slices = compare_files(prints[first], prints[second])
                if max(shares) >= SHARE:
                    lines = tuple(
                        _lines(code[s], spans)
                        for s, spans in zip((first, second), slices, strict=True)
                    )
                    found.append(
                        Pair(lab.name, (first, second), min(1.0, float(max(shares))), lines)
                    )
    return sorted(
        found, key=lambda pair: (-pair.share, -len(pair.lines[0]), pair.lab, pair.students)
    )


def write(found, folder) -> None:
    """The table as a page, with the lines side by side."""
    from grading.feedback import template

    replace(folder / "similar.html", template("similar.html").render(pairs=found))


def _code(one):
    """What a student wrote for a lab, in the lab's order."""
    answers = one.answers or {}
    texts = [
        answers[e.name].text
        for e in one.lab.exercises
        if e.name in answers and answers[e.name].attempted
    ]
    return "\n\n".join(text for text in texts if text)


def _common(lab, texts):
    """Fingerprints that tell nothing: those of the lab's own text, and those of many."""
    from copydetect import CodeFingerprint

    prints = [
        set(CodeFingerprint("a.py", TOKENS, 1, fp=io.StringIO(text)).hashes) for text in texts
    ]
    counts = Counter(mark for marks in prints for mark in marks)
    many = {mark for mark, count in counts.items() if count > max(3, MANY * len(prints))}
    given = CodeFingerprint(
        "a.py", TOKENS, 1, fp=io.StringIO("\n\n".join(e.stub for e in lab.exercises))
    )
    return sorted(many | set(given.hashes))


def _lines(text, spans):
    """(number, text) of the lines that spans of characters lie in. spans: (starts, ends)."""
    numbers = set()
    for start, end in zip(*spans, strict=True):
        numbers.update(
            range(
                text.count("\n", 0, int(start)) + 1,
                text.count("\n", 0, max(int(start), int(end) - 1)) + 2,
            )
        )
    lines = text.splitlines()
    return tuple(
        (n, lines[n - 1]) for n in sorted(numbers) if n <= len(lines) and lines[n - 1].strip()
    )
