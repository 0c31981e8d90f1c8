"""From a launch that was counted to what the warps of the compiled kernel request."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nogpu.kernels.errors import KernelError
from nogpu.kernels.source import Source
from nogpu.tiles import compiler, process, ptx
from nogpu.tiles.arrays import Arrays, Placed
from nogpu.tiles.costs import Access, Kind
from nogpu.tiles.functions import Function
from nogpu.tiles.launch import Launch
from nogpu.tiles.memory import Argument, Memory
from nogpu.tiles.ptx.spaces import Global
from nogpu.tiles.report import Warps

MOST_BYTES = 1 << 28  # of the arrays of a launch, which are kept as they were before it
DEFAULTS = {"num_warps": 4, "num_stages": 3, "capability": 90}
CALLS: dict[Kind, tuple[str, ...]] = {  # how a kernel's text asks for it
    "load": ("load",),
    "copy": ("load",),
    "store": ("store",),
    "atomic": ("atomic",),
}


@dataclass
class Launched:
    """A launch, and what its arrays held before it."""

    launch: Launch
    options: dict[str, int]
    arguments: list[Argument]
    contents: list[bytes] | None  # of the buffers in Memory(arguments); None: too much to keep

    @classmethod
    def of(cls, launch: Launch, arrays: Arrays, constants: dict[str, Any]) -> "Launched":
        """The launch, which is about to run. constants: as they were given, options included."""
        memory = Memory(arrays.arguments())
        options = {name: constants[name] for name in DEFAULTS if name in constants}
        kept = sum(b.high - b.low for b in memory.distinct_buffers()) <= MOST_BYTES
        return cls(launch, options, memory.arguments, memory.contents() if kept else None)

    def warps(self) -> Warps:
        """What the warps of the kernel request once it is compiled."""
        code, requests, _ = self.run()
        options = DEFAULTS | self.options
        return Warps(
            accesses=list(_accesses(requests, code, _texts(self.launch))),
            kernel=self.launch.function.name,
            grid=self.launch.grid,
            arrays={argument.name: argument.shape for argument in self.arguments},
            num_warps=options["num_warps"],
            num_stages=options["num_stages"],
            capability=options["capability"],
        )

    def run(self) -> tuple[ptx.Code, ptx.Requests, Global]:
        """The compiled kernel, its requests, and what it leaves in the copies of its arrays."""
        function = self.launch.function
        if self.contents is None:
            raise KernelError(
                f"the arrays of {function.name} hold more than {MOST_BYTES >> 20} MiB, which is "
                "too much to keep for a second count; give smaller ones"
            )
        types, fixed, aligned = self._signature()
        options = DEFAULTS | self.options
        capability = options.pop("capability")
        compiled = process.process_for(interpret=False).call(
            compiler.compile_here, function, types, fixed, aligned, options, capability
        )
        memory = Memory(self.arguments)
        held = Global(memory, self.contents)
        values = [
            memory.arguments[value.number].address if isinstance(value, Placed) else value
            for value in (self.launch.values[name] for name in types if name not in fixed)
        ]
        code = ptx.parsed(compiled.ptx)
        try:
            requests = ptx.requested(code, values, held, self.launch.grid, compiled.shared_bytes)
        except ptx.RefusedError as error:
            text = _texts(self.launch).get(code.files.get(error.place.file, ""))
            where = text.source.where(text.line(error.place)) if text else function.name
            raise KernelError(f"{where}, compiled: {error}") from None
        return code, requests, held

    def _signature(self) -> tuple[dict[str, str], dict[str, Any], list[str]]:
        values, aligned = {}, []
        for name, value in self.launch.values.items():
            if isinstance(value, Placed):
                argument = self.arguments[value.number]
                if value.descriptor is not None:
                    raise KernelError(
                        f"{name} is a tensor descriptor: the GPU's copy engine fetches its tiles, "
                        "and no warp requests them"
                    )
                if (argument.start - argument.storage) % 16 == 0:
                    aligned.append(name)
                value = compiler.pointer_type(name, argument.dtype)
            values[name] = value
        types, fixed, numbers = compiler.signature_of(self.launch.function, values)
        return types, fixed, aligned + numbers


class _Text:
    """The text of a function that was compiled, and where its lines are in the text as written."""

    def __init__(self, function: Function) -> None:
        self.source: Source = function.source
        written, compiled = function.definition(), ast.parse(compiler.text(function)).body[0]
        self.calls = [
            (there, here.lineno)
            for here, there in zip(ast.walk(written), ast.walk(compiled), strict=True)
            if isinstance(here, ast.Call) and isinstance(there, ast.Call)
        ]

    def line(self, place: ptx.Place, names: tuple[str, ...] = ("load", "store", "atomic")) -> int:
        """The line, as written, of the innermost call of these names around a place."""
        around = [
            (call, line)
            for call, line in self.calls
            if call.lineno <= place.line <= (call.end_lineno or 0)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr.startswith(names)
        ]
        inside = [
            pair
            for pair in around
            if pair[0].col_offset <= place.column <= (pair[0].end_col_offset or 0)
        ]
        return (inside or around)[-1][1] if around else place.line


def _texts(launch: Launch) -> dict[str, _Text]:
    """{the name of its file: the text of a function}, also of those given as constants."""
    given = [value for value in launch.values.values() if isinstance(value, Function)]
    return {
        name: _Text(part)
        for whole in (*given, launch.function)
        for name, part in compiler.files(whole).items()
    }


def _accesses(requests: ptx.Requests, code: ptx.Code, texts: dict[str, _Text]) -> Iterator[Access]:
    """The accesses by line; instructions of the same line are added up."""
    by_line: dict[tuple[str, int, str, Kind], Access] = {}
    for (kind, array, place), traffic in requests.sites.items():
        text = texts.get(code.files.get(place.file, ""))
        name, line = (text.source.name, text.line(place, CALLS[kind])) if text else ("", 0)
        key = name, line, array, kind
        if key not in by_line:
            shown = text.source.line(line) if text else ""
            by_line[key] = Access(name, line, shown, array, kind)
        by_line[key].traffic.add(traffic)
    yield from by_line.values()
