"""The constants of a kernel, as data that can cross to a process with another tl."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from nogpu.tiles.dtypes import BY_ANY_NAME


@dataclass(frozen=True)
class Dtype:
    """One of Triton's dtypes, by its name in tl."""

    name: str


Constant = int | float | str | Dtype | tuple | None


def plain(name: str, value: Any) -> Constant:
    """A number, a dtype, or a tuple of them as data; ValueError if the value is another thing."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, tuple):
        return tuple(plain(name, item) for item in value)
    text = str(getattr(value, "name", value)).removeprefix("torch.")
    if text in BY_ANY_NAME:
        return Dtype(BY_ANY_NAME[text])
    raise ValueError(
        f"{name} is {value!r}; a kernel's constant is a number, a dtype, or a tuple of them"
    )


def resolved(value: Constant, tl: ModuleType) -> Any:
    """A constant as the kernel sees it: Dtype("float32") is tl.float32."""
    if isinstance(value, tuple):
        return tuple(resolved(item, tl) for item in value)
    return getattr(tl, value.name) if isinstance(value, Dtype) else value
