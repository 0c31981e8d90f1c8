"""The text of PTX as instructions.

Source: Parallel Thread Execution ISA, version 8.7 (NVIDIA).
"""

import re
from dataclasses import dataclass, field

ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)\s*((?:\.\w+[^{]*?)*)\{(.*)", re.DOTALL)
PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+.*?(\w+)(\[\d+\])?\s*$")
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
PLACE = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
LABEL = re.compile(r"^(\$?[\w$]+):")
STATEMENT = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*?)"', re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A line and a column (from 1) of the kernel's file with this number; 0 if unknown."""

    file: int = 0
    line: int = 0
    column: int = 0


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name cut at the dots, its operands, and its predicate."""

    name: tuple[str, ...]
    operands: tuple["Operand", ...]
    predicate: str = ""
    negated: bool = False  # of the predicate
    place: Place = field(default=Place(), compare=False)

    def __str__(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True)
class Address:
    """[base + offset]. base: a register, a parameter or a symbol."""

    base: str
    offset: int = 0


Operand = str | Address | tuple[str, ...]  # a register or a number; in [ ]; in { }


@dataclass
class Code:
    """A kernel: its instructions, and where its labels stand among them."""

    parameters: list[tuple[str, str]] = field(default_factory=list)  # (name, type), in order
    registers: dict[str, str] = field(default_factory=dict)  # name, without its number: type
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    threads: int = 0  # per program


def parsed(text: str) -> Code:
    """The kernel of a PTX module, which has one."""
    plain = re.sub(r"//.*", "", INLINE.sub(_at_one_place, text))
    entry = ENTRY.search(plain)
    if entry is None:
        raise ValueError("this PTX has no kernel")
    _, parameters, directives, body = entry.groups()
    code = Code(files={int(number): name for number, name in FILE.findall(plain)})
    for parameter in parameters.split(","):
        if match := PARAMETER.match(parameter.strip()):
            code.parameters.append((match[2], "array" if match[3] else match[1]))
    if threads := re.search(r"\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", directives):
        x, y, z = (int(number or 1) for number in threads.groups())
        code.threads = x * y * z
    _read_body(code, body)
    return code


def _at_one_place(assembly: re.Match[str]) -> str:
    """Inline assembly, all of it at the place of the call that it stands for.

    From Triton 3.9 on, each of its lines has a .loc, one line after that of the line before.
    """
    lines: list[str] = []
    for line in assembly[0].splitlines():
        if match := PLACE.match(line.strip()):
            before = sum(not PLACE.match(other.strip()) for other in lines[1:])
            file, number, column = map(int, match.groups())
            line = f".loc {file} {number - before} {column}"
        lines.append(line)
    return "\n".join(lines)


def _read_body(code: Code, body: str) -> None:
    place, statement, depth = Place(), "", 1
    for line in body.splitlines():
        rest = line.strip()
        if match := PLACE.match(rest):
            place = Place(*map(int, match.groups()))
            continue
        while match := LABEL.match(rest):
            code.labels[match[1]] = len(code.instructions)
            rest = rest[match.end() :].strip()
        if not statement and rest in ("{", "}"):  # a scope of inline assembly, or the end
            depth += 1 if rest == "{" else -1
            if not depth:
                return
            continue
        *whole, statement = (statement + " " + rest).split(";")
        for part in whole:
            _read_statement(code, part.strip().lstrip("{").lstrip(), place)
        statement = statement.strip()
        if statement == "}":
            statement, depth = "", depth - 1


def _read_statement(code: Code, text: str, place: Place) -> None:
    if match := REGISTERS.match(text):
        for name in match[2].split(","):
            code.registers[re.sub(r"<\d+>", "", name.strip())] = match[1]
    elif (match := STATEMENT.fullmatch(text)) and not text.startswith("."):
        negated, predicate, name, operands = match.groups()
        code.instructions.append(
            Instruction(
                tuple(re.split(r"\.(?!:)", name)),
                tuple(_operand(part) for part in _cut(operands)),
                predicate or "",
                bool(negated),
                place,
            )
        )


def _cut(text: str) -> list[str]:
    """The text at its commas, but not at those within { } or [ ]."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text)
    return [part.strip() for part in parts if part.strip()]


def _operand(text: str) -> Operand:
    if text.startswith("{"):
        return tuple(part.strip() for part in text.strip("{}").split(",") if part.strip())
    if text.startswith("["):
        inside = text.strip("[]").replace(" ", "")
        match = re.fullmatch(r"([%\w$]+)(?:\+?(-?\w+))?", inside)
        if match is None:  # a tuple of coordinates, as tensor copies have
            return Address(inside)
        return Address(match[1], int(match[2] or "0", 0))
    return text.split("|")[0] if "|" in text and text.startswith("%") else text
