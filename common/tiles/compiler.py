"""What Triton's compiler makes of a kernel, with no GPU: PTX, registers, shared memory."""

import ast
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common import sources
from common.kernels.errors import KernelError
from common.tiles.functions import Dtype, resolved

SHORT = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fn": "fp8e4nv",
}


@dataclass
class Compiled:
    """A compiled kernel. registers: of a thread; spilled_bytes: what did not fit in them, stored and loaded, of a thread."""

    ptx: str = field(repr=False)
    ttir: str = field(repr=False)
    shared_bytes: int
    registers: int
    spilled_bytes: int

    def instructions(self, name):
        """The number of instructions in the PTX whose name begins with this one: "wgmma.mma_async", "mma.sync", "fma"."""
        names = re.findall(
            r"^\s*(?:\{\s*)?(?:@!?%\w+\s+)?([a-z][\w.:]*)", self.ptx, flags=re.MULTILINE
        )
        return sum(found == name or found.startswith(name + ".") for found in names)


def signature(function, arguments, constants):
    """({parameter: type, as Triton writes it}, {parameter: constant}, [parameters that are multiples of 16])."""
    from common.tiles.kernel import bound

    types, fixed, aligned = {}, {}, []

    def place(name, thing):
        base = thing.base if type(thing).__name__ == "TensorDescriptor" else thing
        if not isinstance(base, np.ndarray) and not hasattr(base, "data_ptr"):
            return None
        dtype = str(base.dtype).removeprefix("torch.")
        if dtype not in SHORT:
            raise KernelError(f"{name} has dtype {dtype}; Triton takes {', '.join(SHORT)}")
        if base is not thing:
            return f"tensordesc<{SHORT[dtype]}{[int(size) for size in thing.block_shape]}>"
        if (base.ctypes.data if isinstance(base, np.ndarray) else base.data_ptr()) % 16 == 0:
            aligned.append(name)
        return "*" + SHORT[dtype]

    values = bound(function, arguments, constants, place)
    for name, constant in function.parameters().items():
        value = values[name]
        if constant or value is None or (value == 1 and type(value) is int):
            types[name], fixed[name] = "constexpr", value
        elif isinstance(value, str):
            types[name] = value
        else:
            types[name] = (
                "i1"
                if isinstance(value, bool)
                else "fp32"
                if isinstance(value, float)
                else _whole(value)
            )
            if type(value) is int and value % 16 == 0:
                aligned.append(name)
    return types, fixed, aligned


def _whole(value) -> str:
    return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"


def compile_here(function, types, fixed, aligned, options, capability):
    """The Compiled kernel, in a process where Triton does not interpret."""
    import triton
    import triton.language as tl
    from triton.compiler import ASTSource

    kernel = _jitted(function, tl, triton)
    names = list(types)
    source = ASTSource(
        kernel,
        types,
        {name: resolved(value, tl) for name, value in fixed.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return of_source(source, options, capability)


def of_source(source, options, capability):
    """The Compiled kernel of what Triton's compiler takes: an ASTSource, or a GluonASTSource, which has no .ttir."""
    import triton
    from triton.backends.compiler import GPUTarget

    try:
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise KernelError(f"{source.name} does not compile: {_reason(error)}") from None
    registers, spilled = _ptxas(made.asm["ptx"], capability, triton)
    return Compiled(
        made.asm["ptx"], str(made.asm.get("ttir", "")), made.metadata.shared, registers, spilled
    )


def _reason(error):
    """What the compiler says: where, and why, which it may tell by the error that caused this one."""
    text = str(error)
    while error.__cause__ is not None:
        error = error.__cause__
        text += "" if str(error) in text else f"\n{error}"
    return text


def _jitted(function, tl, triton):
    """The @triton.jit function of a checked Function, with what it uses."""
    made = {}
    for number, each in enumerate(function.closure()):
        node = each.definition()
        text = (
            "\n" * (node.lineno - 1) + ast.unparse(node) + "\n"
        )  # of the tree that was checked, and not the text itself
        file = f"<{each.name} {number}>"
        sources.remember(file, text)
        namespace = {
            "__name__": file,  # Triton asks a called function for its module's name
            "tl": tl,
            "triton": triton,
            "constexpr": tl.constexpr,
            **{
                name: resolved(value, tl)
                if isinstance(value, Dtype)
                else tl.constexpr(resolved(value, tl))
                for name, value in each.constants.items()
            },
            **{name: made[id(called)] for name, called in each.functions.items()},
        }
        exec(compile(text, file, "exec"), namespace)
        made[id(each)] = triton.jit(namespace[each.name])
    return made[id(function)]


def _ptxas(ptx, capability, triton):
    """(registers, spilled bytes) of a thread, as NVIDIA's assembler in Triton's wheel tells them."""
    tool = (
        triton.knobs.nvidia.ptxas.path
        if capability < 100
        else triton.knobs.nvidia.ptxas_blackwell.path
    )
    name = f"sm_{capability}" + ("a" if capability >= 90 else "")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        told = subprocess.run(
            [tool, "-v", f"--gpu-name={name}", source, "-o", Path(folder) / "kernel.cubin"],
            capture_output=True,
            text=True,
            check=True,
        )
    text = told.stdout + told.stderr
    registers = re.search(r"Used (\d+) registers", text)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", text)
    return int(registers[1]) if registers else 0, sum(map(int, spills))
