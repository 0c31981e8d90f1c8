"""What a check asserts: `got` agrees with `want`, or a message says what was tried."""

import functools
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeGuard

import numpy as np

from common.notebook import check_display, grader_preview, notebook_file

if TYPE_CHECKING:
    import torch

    Array = torch.Tensor | np.ndarray


class Short(reprlib.Repr):
    """repr() in about a line: long lists are cut, large arrays show type and shape only."""

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, np.generic):
            return repr(x.item())
        if _is_array(x):
            return show(x) if _float_array(x).size <= 4 else _kind(x)
        return super().repr1(x, level)


NO_RETURN = "None came: is a `return` missing?"
LINE = 100  # characters that a notebook shows in one line
SHORT = Short()
SHORT.maxtuple = SHORT.maxlist = SHORT.maxdict = SHORT.maxset = 12
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 120

Draw = Callable[[], object]  # makes a figure; it has all the data that it needs


class Pictures:
    """Whether a failed check draws. It does in a notebook; the grader has no page to draw on."""

    wanted = False
    must_work = False  # in tests: what a drawing raises is raised, and does not pass unseen


class Remarks:
    """What `remark` has said, for the grader, which shows no page."""

    said: ClassVar[list[str]] = []


class WhenWrong(Mapping[str, Any]):
    """Mistakes for `agree` whose values cost time: they are computed once a check has failed.

    compute: gives {sentence: value}. It draws nothing random, and what it reads stays as it is.
    """

    named = True  # False in tests that ask only whether a check fails: then there are no mistakes

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self.compute = functools.cache(lambda: compute() if self.named else {})

    def __getitem__(self, sentence: str) -> Any:
        return self.compute()[sentence]

    def __iter__(self) -> Iterator[str]:
        return iter(self.compute())

    def __len__(self) -> int:
        return len(self.compute())

    def __or__(self, more: Mapping[str, Any]) -> "WhenWrong":
        return WhenWrong(lambda: {**self, **more})


def agree(
    got: Any,
    want: Any,
    case: str,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    mistakes: Mapping[str, Any] | None = None,
    draw: Draw | None = None,
) -> None:
    """Raise AssertionError unless `got` has the type, shape, dtype and values of `want`.

    case: what was tried, as the student would type it.
    rtol, atol: the tolerance, |got - want| <= atol + rtol |want|. By default numbers agree exactly.
    mistakes: {sentence: the value that this mistake gives}. If that value came, the message begins
    with its sentence.
    draw: makes a figure of what came and what was wanted. It is called only after a difference, and
    only in a notebook, where the figure stands below the message.

    NaN agrees only with NaN. An int counts as a float, and a NumPy scalar as a number.
    A hole that still holds `...` raises NotImplementedError, as an unsolved function does.
    """
    if got is Ellipsis:
        raise NotImplementedError(f"{case} is still ...: replace it with your answer")
    difference = _difference(got, want, rtol, atol)
    if difference is None:
        return
    known = (
        sentence
        for sentence, wrong in (mistakes or {}).items()
        if _difference(got, wrong, rtol, atol) is None
    )
    results = got if isinstance(got, list) else [got]  # of several calls, or of one
    nothing = bool(results) and all(each is None for each in results)
    mistake = next(known, NO_RETURN if nothing else "")
    _fail(report(case, show(got), show(want), difference, mistake), draw)


def report(case: str, got: str, want: str, difference: str = "", mistake: str = "") -> str:
    """What a failed check says: the named mistake first, then what came and what was wanted.

    Long values have lines of their own.
    """
    parts = [case, f"gave {got},", f"want {want}", difference and f"({difference})"]
    parts = [part for part in parts if part]
    line = f"{' '.join(parts)}."
    values = line if len(line) <= LINE else "\n  ".join(parts) + "."
    return f"{mistake}\n{values}" if mistake else values


def open_exercise(error: NotImplementedError) -> str:
    """Which exercise is not written yet: its stub's error begins with "Exercise 1.1: "."""
    return str(error).partition(":")[0] or "The exercise"


def expect(condition: object, message: str, *, draw: Draw | None = None) -> None:
    """Raise AssertionError(message) unless the condition is true. draw: as for `agree`."""
    if not condition:
        _fail(message, draw)


def no_fault(fault: str, *, draw: Draw | None = None) -> None:
    """Raise AssertionError(fault) unless the fault is "". draw: as for `agree`."""
    if fault:
        _fail(fault, draw)


def remark(condition: object, message: str, *, draw: Draw | None = None) -> None:
    """Say the message unless the condition is true. It never costs points.

    It is for what only the student's own process can know: its clock, its live tensors. A program
    can lie about those, so they neither give points nor take them.
    """
    if condition:
        return
    Remarks.said.append(message)
    print(f"Remark (it costs no points): {message}")
    _picture(draw)


def nearly(got: Any, want: Any, share: float = 0.01) -> bool:
    """Whether numbers came that differ from the wanted ones by a small share of the largest.

    Then the way is right, and digits are lost on it. Lists: whether this holds for each item.
    """
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return False
        return all(nearly(*pair, share) for pair in zip(got, want, strict=True))
    if isinstance(want, (int, float)):
        return isinstance(got, (int, float, np.number)) and abs(got - want) <= share * abs(want)
    if not (_is_array(want) and _is_array(got)) or tuple(got.shape) != tuple(want.shape):
        return False
    ours, theirs = (_float_array(x).astype(float) for x in (got, want))
    return not ours.size or bool(abs(ours - theirs).max() <= share * abs(theirs).max())


def near_miss(got: Any, want: Any, says: str, share: float = 0.01) -> dict[str, Any]:
    """{says: got}, for agree's mistakes, if the numbers are nearly the wanted ones; else {}."""
    return {says: got} if nearly(got, want, share) else {}


def is_whole(value: Any) -> bool:
    """Whether this is an integer of Python or of NumPy. True and False do not count."""
    return type(value) is int or isinstance(value, np.integer)


def as_tuple(value: Any) -> Any:
    """A list as a tuple, anything else as it is: for a check whose text asks for "two numbers"."""
    return tuple(value) if isinstance(value, list) else value


def _fail(message: str, draw: Draw | None) -> NoReturn:
    _picture(draw)
    raise AssertionError(message)


def _picture(draw: Draw | None) -> None:
    if draw is not None and Pictures.wanted:
        try:
            draw()
        except Exception:  # a picture that can't be drawn must not hide the message
            if Pictures.must_work:
                raise


def show(value: Any) -> str:
    """The value in about a line; an array with its type and shape."""
    if _is_array(value):
        array = _float_array(value)
        text = (
            np.array2string(array, threshold=12, edgeitems=2, precision=5, separator=", ")
            if array.size
            else "[]"
        )
        return f"{_kind(value)} {' '.join(text.split())}"
    return SHORT.repr(value)


def _kind(array: "Array") -> str:
    kind = "tensor" if _is_tensor(array) else "array"
    return f"{str(array.dtype).removeprefix('torch.')} {kind} of shape {tuple(array.shape)}"


def _difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    """Where `got` differs from `want`; None if they agree; "" if the values show it."""
    if _is_tensor(want):
        if not _is_tensor(got):
            return f"{_a(got)}, not a tensor"
        return _array_difference(got, want, rtol, atol)
    if type(want) is np.ndarray:
        if type(got) is not np.ndarray:
            return f"{_a(got)}, not an array"
        return _array_difference(got, want, rtol, atol)
    if isinstance(got, (dict, list, tuple)):  # a namedtuple is a tuple: so it crosses, too
        got = next(kind(got) for kind in (dict, list, tuple) if isinstance(got, kind))
    if isinstance(got, str):
        got = str.__str__(got)  # an np.str_, or a member of a StrEnum
    if type(want) in (list, tuple):
        return _sequence_difference(got, want, rtol, atol)
    if type(want) is dict:
        if type(got) is not dict:
            return f"{_a(got)}, not a dict"
        return _first(got, want, want, rtol, atol) if set(got) == set(want) else "other keys"
    if isinstance(want, (bool, np.bool_)):
        kinds = (bool, np.bool_)
        return None if type(got) in kinds and got == want else _other_type(got, "a bool", kinds)
    if isinstance(want, (int, float, complex, np.number)):
        return _number_difference(got, want, rtol, atol)
    same = type(got) is type(want) and got == want
    return None if same else _other_type(got, _a(want), (type(want),))


def _sequence_difference(
    got: Any, want: list[Any] | tuple[Any, ...], rtol: float, atol: float
) -> str | None:
    if type(got) is not type(want):
        return f"{_a(got)}, not {_a(want)}"
    if len(got) != len(want):
        return f"{len(got)} long, not {len(want)}"
    return _first(got, want, range(len(want)), rtol, atol)


def _first(got: Any, want: Any, keys: Iterable[Any], rtol: float, atol: float) -> str | None:
    for key in keys:
        difference = _difference(got[key], want[key], rtol, atol)
        if difference is not None:
            inner = difference.removeprefix("at ")  # "at [0]" in the item 2 is "at [2][0]"
            return f"at [{key!r}]" + (inner if inner[:1] == "[" else f": {inner}" if inner else "")
    return None


def _number_difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    whole = isinstance(want, (int, np.integer))
    accepted: tuple[type, ...] = (int,) if whole else (int, float)
    if isinstance(want, (complex, np.complexfloating)):
        accepted += (complex,)
    if type(got) not in accepted and not isinstance(got, np.integer if whole else np.number):
        return f"{_a(got)}, not {'an int' if whole else 'a number'}"
    if isinstance(got, np.floating):
        got = float(got)  # else NumPy rounds `want` to got's dtype before it compares them
    if got == want or (want != want and got != got):
        return None
    close = abs(got - want) <= atol + rtol * abs(want) and abs(want) != float("inf")
    return None if close else ""


def _array_difference(got: "Array", want: "Array", rtol: float, atol: float) -> str | None:
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"{got.dtype}, not {want.dtype}"
    if _is_tensor(want) and sys.modules["torch"].equal(got, want):
        return None
    ours, theirs = _float_array(want), _float_array(got)
    with np.errstate(all="ignore"):
        if rtol or atol:
            wrong = ~np.isclose(theirs, ours, rtol=rtol, atol=atol, equal_nan=True)
        else:  # isclose would compare in float64, in which large integers are equal
            wrong = ~((theirs == ours) | ((theirs != theirs) & (ours != ours)))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, index))}]"
    place = f"at {where} {theirs[index]}, want {ours[index]}" if index else ""
    if wrong.sum() == 1:
        return place
    return f"{int(wrong.sum()):,} of {wrong.size:,} elements differ, first {place}"


def _float_array(value: "Array") -> np.ndarray:
    """The same numbers as a NumPy array; formats that NumPy lacks (bfloat16) become float32."""
    if isinstance(value, np.ndarray):
        return value
    value = value.detach().cpu()
    narrow = value.dtype.is_floating_point and value.dtype.itemsize < 4
    return value.float().numpy() if narrow else value.numpy()


def _is_array(value: Any) -> "TypeGuard[Array]":
    return type(value) is np.ndarray or _is_tensor(value)


def _is_tensor(value: Any) -> "TypeGuard[torch.Tensor]":
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def _other_type(got: Any, wanted: str, accepted: tuple[type, ...]) -> str:
    return "" if type(got) in accepted else f"{_a(got)}, not {wanted}"


def _a(value: Any) -> str:
    """The name of the value's type with its article, "an int"; "None" for None."""
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


if notebook_file.shell():
    check_display.install()
    Pictures.wanted = True
    grader_preview.watch(notebook_file.shell())
