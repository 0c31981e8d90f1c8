"""From what a launch is given to a value for each parameter of its kernel."""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from nogpu.kernels.errors import KernelError, LaunchError
from nogpu.tiles import jitted, text
from nogpu.tiles.constants import plain
from nogpu.tiles.functions import Function

LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "capability"}
Place = Callable[[str, Any], Any]  # (parameter, thing) -> what stands for an array; None for others


def bound(
    function: Function, arguments: tuple, constants: dict[str, Any], place: Place
) -> dict[str, Any]:
    """{parameter: value} of a launch, without the launch's options."""
    parameters, name = function.parameters(), function.name
    if len(arguments) > len(parameters):
        raise LaunchError(
            f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}), and "
            f"{len(arguments)} were given"
        )
    given = dict(zip(parameters, arguments, strict=False))
    for key, value in constants.items():
        if key in given:
            raise LaunchError(f"{name} is given {key} twice")
        if key in parameters:
            given[key] = value
        elif key not in LAUNCH_OPTIONS:
            raise LaunchError(
                f"{name} has no parameter {key}; its parameters are {', '.join(parameters)}"
            )
    given = defaults(function) | given
    if missing := [key for key in parameters if key not in given]:
        raise LaunchError(f"{name} needs {', '.join(missing)}")
    return {
        key: _constant(key, given[key]) if constant else _argument(key, given[key], place)
        for key, constant in parameters.items()
    }


def defaults(function: Function) -> dict[str, Any]:
    """{parameter: its default}, of those that have one."""
    arguments = function.definition().args
    names = [argument.arg for argument in arguments.args]
    values = [ast.literal_eval(default) for default in arguments.defaults]
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


def _constant(name: str, value: Any) -> Any:
    """A constant as data: a number, a text, a dtype; the Function of a function or of its text."""
    if isinstance(value, str):
        return text.of_last(value) if value.lstrip().startswith("@triton.jit") else value
    if isinstance(value, jitted.Kernel) or jitted.is_jitted(value):
        return jitted.as_kernel(value).function
    return plain(name, value)


def _argument(name: str, value: Any, place: Place) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise KernelError(f"{name} is {value}; an integer has 64 bits at most")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    placed = place(name, _described(name, value) if isinstance(value, tuple) else value)
    if placed is None:
        raise KernelError(
            f"{name} is a {type(value).__name__}; a kernel takes arrays, tensors, "
            "tensor descriptors and numbers"
        )
    return placed


def _described(name: str, parts: tuple) -> Any:
    """The descriptor of (tensor, shape, strides, block_shape), which checks without Triton give."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    try:
        return TensorDescriptor(*parts)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        what = (
            f"{name} is a tuple, but not a tensor descriptor (tensor, shape, strides, block_shape)"
        )
        raise KernelError(f"{what}: {error}") from None
