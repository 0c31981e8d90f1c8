"""What Triton's compiler makes of a kernel, without a GPU: PTX, registers, shared memory."""

import ast
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nogpu.kernels import linecache_text
from nogpu.kernels.errors import KernelError
from nogpu.tiles.binding import bound
from nogpu.tiles.constants import Constant, Dtype, resolved
from nogpu.tiles.dtypes import TYPE_NAME
from nogpu.tiles.functions import Function


@dataclass
class Compiled:
    """A compiled kernel. spilled_bytes: stored and loaded because the registers did not suffice."""

    ptx: str = field(repr=False)
    ttir: str = field(repr=False)
    shared_bytes: int
    registers: int  # per thread
    spilled_bytes: int  # per thread
    cubin: bytes = field(repr=False, default=b"")

    def loop(self) -> Counter[str]:
        """{name: count} of the instructions in the longest loop of the machine code (SASS)."""
        import triton

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(self.cubin)
            command = [triton.knobs.nvidia.cuobjdump.path, "-sass", str(file)]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+ )?([A-Z]\w+)(.*?);", text)
        addresses = [int(address, 16) for address, _, _ in lines]
        loops = [
            addresses[addresses.index(int(target[1], 16)) : place + 1]
            for place, (_, name, rest) in enumerate(lines)
            if name == "BRA" and (target := re.search(r"0x([0-9a-f]+)", rest))
            if int(target[1], 16) < addresses[place]
        ]
        longest = set(max(loops, key=len, default=[]))
        return Counter(name for address, name, _ in lines if int(address, 16) in longest)

    def instructions(self, name: str) -> int:
        """How many instructions in the PTX have this name, as wgmma.mma_async, or begin with it."""
        names = re.findall(
            r"^\s*(?:\{\s*)?(?:@!?%\w+\s+)?([a-z][\w.:]*)", self.ptx, flags=re.MULTILINE
        )
        return sum(other == name or other.startswith(name + ".") for other in names)


def signature(
    function: Function, arguments: tuple, constants: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Constant | Function], list[str]]:
    """({parameter: type, as Triton writes it}, {parameter: constant}, [multiples of 16])."""
    aligned: list[str] = []

    def place(name: str, thing: Any) -> str | None:
        written = _array_type(name, thing)
        if written and written.startswith("*") and _address(thing) % 16 == 0:
            aligned.append(name)
        return written

    types, fixed, numbers = signature_of(function, bound(function, arguments, constants, place))
    return types, fixed, aligned + numbers


def signature_of(
    function: Function, values: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Constant | Function], list[str]]:
    """The same for values in which the type of an array, a str, stands for it."""
    types: dict[str, str] = {}
    fixed: dict[str, Constant | Function] = {}
    aligned: list[str] = []
    for name, constant in function.parameters().items():
        value = values[name]
        if constant or value is None or (value == 1 and type(value) is int):
            types[name], fixed[name] = "constexpr", value
        else:
            types[name] = value if isinstance(value, str) else _number_type(value)
            if type(value) is int and value % 16 == 0:
                aligned.append(name)
    return types, fixed, aligned


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


def _array_type(name: str, thing: Any) -> str | None:
    """The type of an array, a tensor or a tensor descriptor; None for another thing."""
    described = type(thing).__name__ == "TensorDescriptor"
    base = thing.base if described else thing
    if not isinstance(base, np.ndarray) and not hasattr(base, "data_ptr"):
        return None
    dtype = str(base.dtype).removeprefix("torch.")
    pointer = pointer_type(name, dtype)
    if described:
        return f"tensordesc<{pointer[1:]}{[int(size) for size in thing.block_shape]}>"
    return pointer


def pointer_type(name: str, dtype: str) -> str:
    """How Triton writes the type of an array of this dtype: *fp32."""
    if dtype not in TYPE_NAME:
        raise KernelError(f"{name} has dtype {dtype}; Triton takes {', '.join(TYPE_NAME)}")
    return "*" + TYPE_NAME[dtype]


def _number_type(value: float) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def compile_here(
    function: Function,
    types: dict[str, str],
    fixed: dict[str, Constant | Function],
    aligned: list[str],
    options: dict[str, int],
    capability: int,
) -> Compiled:
    """The Compiled kernel, in a process where Triton does not interpret."""
    import triton
    import triton.language as tl
    from triton.compiler import ASTSource

    names = list(types)
    source = ASTSource(
        _jitted(function, tl, triton),
        types,
        {name: _fixed(value, tl, triton) for name, value in fixed.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return of_source(source, options, capability)


def of_source(source: Any, options: dict[str, int], capability: int) -> Compiled:
    """The Compiled kernel of Triton's ASTSource, or of a GluonASTSource, which has no .ttir."""
    import triton
    from triton.backends.compiler import GPUTarget

    # Triton 3.9 warns where nobody chooses; a later one will not fuse a * b + c by itself.
    options = {"enable_fp_fusion": True, **options}
    try:
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise KernelError(f"{source.name} does not compile: {_reason(error)}") from None
    registers, spilled = _ptxas(made.asm["ptx"], capability)
    return Compiled(
        made.asm["ptx"],
        str(made.asm.get("ttir", "")),
        made.metadata.shared,
        registers,
        spilled,
        made.asm["cubin"],
    )


def _reason(error: BaseException) -> str:
    """Where the compiler stopped, and why; the errors that caused this one may say it."""
    text = str(error)
    while error.__cause__ is not None:
        error = error.__cause__
        text += "" if str(error) in text else f"\n{error}"
    return text


def _jitted(function: Function, tl: ModuleType, triton: ModuleType) -> Any:
    """The @triton.jit function of a checked Function, with what it uses."""
    made: dict[int, Any] = {}
    for file, part in files(function).items():
        code = text(part)
        linecache_text.remember(file, code)
        namespace = {
            "__name__": file,  # Triton asks a called function for its module's name
            "tl": tl,
            "triton": triton,
            "constexpr": tl.constexpr,
            **{name: _constant(value, tl) for name, value in part.constants.items()},
            **{name: made[id(called)] for name, called in part.functions.items()},
        }
        exec(compile(code, file, "exec"), namespace)  # noqa: S102 - `language` has checked it
        made[id(part)] = triton.jit(namespace[part.name])
    return made[id(function)]


def _fixed(value: Constant | Function, tl: ModuleType, triton: ModuleType) -> Any:
    """What a parameter that is a tl.constexpr stands for: a constant, or a @triton.jit function."""
    return _jitted(value, tl, triton) if isinstance(value, Function) else resolved(value, tl)


def files(function: Function) -> dict[str, Function]:
    """{the name of its file, for Triton: a function}, of a kernel and all that it calls."""
    return {f"<{part.name} {number}>": part for number, part in enumerate(function.closure())}


def text(function: Function) -> str:
    """What is compiled: the text of the tree that was checked, not the text that was given."""
    node = function.definition()
    return "\n" * (node.lineno - 1) + ast.unparse(node) + "\n"


def _constant(value: Constant, tl: ModuleType) -> Any:
    known = resolved(value, tl)
    return known if isinstance(value, Dtype) else tl.constexpr(known)


def _ptxas(ptx: str, capability: int) -> tuple[int, int]:
    """(registers, spilled bytes) per thread, from the assembler that Triton itself would call."""
    from triton.backends.nvidia.compiler import get_ptxas

    name = f"sm_{capability}" + ("a" if capability >= 90 else "")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        cubin = Path(folder) / "kernel.cubin"
        command = [get_ptxas(capability).path, "-v", f"--gpu-name={name}", source, "-o", cubin]
        assembled = subprocess.run(command, capture_output=True, text=True, check=True)
    text = assembled.stdout + assembled.stderr
    registers = re.search(r"Used (\d+) registers", text)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", text)
    return int(registers[1]) if registers else 0, sum(map(int, spills))
