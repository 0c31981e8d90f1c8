"""What a check asserts: got agrees with want, or a message says what was tried, what came and what was wanted."""

import reprlib
import sys
import traceback

import numpy as np


class Short(reprlib.Repr):
    """repr() in a line or so: what lies in lists is cut, arrays among it to type and shape unless they are small."""

    def repr1(self, value, level):
        if isinstance(value, np.generic):
            return repr(value.item())
        if _is_tensor(value) or type(value) is np.ndarray:
            return show(value) if _float_array(value).size <= 4 else _kind(value)
        return super().repr1(value, level)


SHORT = Short()
SHORT.maxtuple = SHORT.maxlist = SHORT.maxdict = SHORT.maxset = 12
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 120


def agree(got, want, case, *, rtol=0.0, atol=0.0, mistakes=None) -> None:
    """Raises AssertionError unless got has want's type, shape, dtype and values.

    case: what was tried, as the student would type it. rtol, atol: |got - want| <= atol + rtol |want|, so without them
    numbers agree exactly; NaN agrees only with a wanted NaN. An int passes for a wanted float, a NumPy scalar for a number.
    mistakes: {sentence: the value that this mistake gives}; the message ends in the sentence whose value came.
    A hole that still holds ... raises NotImplementedError, as an unsolved function does.
    """
    if got is Ellipsis:
        raise NotImplementedError(f"{case} is still ...: replace it with your answer")
    difference = _difference(got, want, rtol, atol)
    if difference is None:
        return
    message = f"{case} gave {show(got)}, want {show(want)}{difference and f' ({difference})'}."
    for sentence, wrong in (mistakes or {}).items():
        if _difference(got, wrong, rtol, atol) is None:
            message += f"\n{sentence}"
            break
    raise AssertionError(message)


def show(value):
    """A value in at most a line or so, an array with its type and shape."""
    if _is_tensor(value) or type(value) is np.ndarray:
        array = _float_array(value)
        text = (
            np.array2string(array, threshold=12, edgeitems=2, precision=5, separator=", ")
            if array.size
            else "[]"
        )
        return f"{_kind(value)} {' '.join(text.split())}"
    return SHORT.repr(value)


def _kind(array) -> str:
    kind = "tensor" if _is_tensor(array) else "array"
    return f"{str(array.dtype).removeprefix('torch.')} {kind} of shape {tuple(array.shape)}"


def _difference(got, want, rtol, atol):
    """None where got agrees with want; else where it differs ("" where the two values say it all)."""
    if _is_tensor(want):
        return (
            _array_difference(got, want, rtol, atol)
            if _is_tensor(got)
            else f"{_a(got)}, not a tensor"
        )
    if type(want) is np.ndarray:
        return (
            _array_difference(got, want, rtol, atol)
            if type(got) is np.ndarray
            else f"{_a(got)}, not an array"
        )
    if type(want) in (list, tuple):
        return _sequence_difference(got, want, rtol, atol)
    if type(want) is dict:
        if type(got) is not dict or set(got) != set(want):
            return f"{_a(got)}, not a dict" if type(got) is not dict else "other keys"
        return _first(got, want, list(want), rtol, atol)
    if isinstance(want, (bool, np.bool_)):
        kinds = (bool, np.bool_)
        return None if type(got) in kinds and got == want else _other_type(got, "a bool", kinds)
    if isinstance(want, (int, float, complex, np.number)):
        return _number_difference(got, want, rtol, atol)
    return (
        None
        if type(got) is type(want) and got == want
        else _other_type(got, _a(want), (type(want),))
    )


def _sequence_difference(got, want, rtol, atol):
    plain = (
        tuple if type(got).__name__ == "Size" and isinstance(got, tuple) else type(got)
    )  # torch.Size is a tuple
    if plain is not type(want):
        return f"{_a(got)}, not {_a(want)}"
    if len(got) != len(want):
        return f"{len(got)} long, not {len(want)}"
    return _first(got, want, range(len(want)), rtol, atol)


def _first(got, want, keys, rtol, atol) -> str | None:
    for key in keys:
        difference = _difference(got[key], want[key], rtol, atol)
        if difference is not None:
            return f"at [{key!r}]" + (f": {difference}" if difference else "")
    return None


def _number_difference(got, want, rtol, atol) -> str | None:
    whole = isinstance(want, (int, np.integer))
    accepted = (int,) if whole else (int, float)
    if isinstance(want, (complex, np.complexfloating)):
        accepted += (complex,)
    if type(got) not in accepted and not isinstance(got, np.integer if whole else np.number):
        return f"{_a(got)}, not {'an int' if whole else 'a number'}"
    if got == want or (want != want and got != got):
        return None
    close = abs(got - want) <= atol + rtol * abs(want) and abs(want) != float("inf")
    return None if close else ""


def _array_difference(got, want, rtol, atol):
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"{got.dtype}, not {want.dtype}"
    if _is_tensor(want) and sys.modules["torch"].equal(got, want):
        return None
    got, want = _float_array(got), _float_array(want)
    with np.errstate(all="ignore"):
        if rtol or atol:
            wrong = ~np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
        else:  # isclose would compare in float64, in which large integers are equal
            wrong = ~((got == want) | ((got != got) & (want != want)))
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"at [{', '.join(map(str, index))}] {got[index]}, want {want[index]}" if index else ""
    return (
        place
        if wrong.sum() == 1
        else f"{int(wrong.sum()):,} of {wrong.size:,} elements differ, first {place}"
    )


def _float_array(value):
    """The same numbers as a NumPy array (formats that NumPy lacks, such as bfloat16, become float32)."""
    if type(value) is np.ndarray:
        return value
    value = value.detach().cpu()
    return (
        value.float().numpy()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4
        else value.numpy()
    )


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def _other_type(got, wanted, accepted) -> str:
    return "" if type(got) in accepted else f"{_a(got)}, not {wanted}"


def _a(value) -> str:
    """A value's type with its article, "an int"; None, which a function without a return gives, is just that."""
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _say_it_short(shell, kind, error, tb, tb_offset=None):
    """In a notebook, an unsolved hole and a failed check are told in their own words, without twenty lines of traceback."""
    last = traceback.extract_tb(tb)[-1]
    of_a_cell = "ipykernel" in last.filename or last.filename.startswith("<ipython")
    if kind is NotImplementedError or last.name == "agree" or (str(error) and of_a_cell):
        shown = [f"\033[31m{kind.__name__}\033[0m: {error}"]
    else:
        shown = shell.InteractiveTB.structured_traceback(kind, error, tb, tb_offset=tb_offset)
    shell._showtraceback(kind, error, shown)
    return shown


if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
    shell.set_custom_exc((AssertionError, NotImplementedError), _say_it_short)
