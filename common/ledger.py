"""The student's own numbers (predicted, counted, measured) and constants, in one JSON file."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import rich.box
from rich.constrain import Constrain
from rich.table import Table

from common import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "ledger.json"
Kind = Literal["predicted", "counted", "measured"]
KINDS: tuple[Kind, ...] = ("predicted", "counted", "measured")
TABLE_STYLE: dict[str, Any] = {
    "title_justify": "left",
    "title_style": "bold",
    "box": rich.box.SIMPLE_HEAD,
}
WIDTH = 80  # characters that a notebook shows without cutting
PREFIXED_UNITS = ("s", "B", "B/s", "FLOP", "FLOP/s")  # shown as 12 µs, 3.35 TB/s


class Entry(TypedDict):
    kind: Kind
    value: float
    time: str


class Number(TypedDict):
    """A number of the ledger: all that was predicted, counted and measured, in this order."""

    unit: str
    entries: list[Entry]


class Constant(TypedDict):
    value: float
    unit: str
    source: str
    time: str


class Sheet(TypedDict):
    """What the file holds."""

    numbers: dict[str, Number]
    constants: dict[str, Constant]


def predict(name: str, value: Any, unit: str) -> None:
    """Writes down a prediction. The last one before the first measurement counts."""
    _add(name, "predicted", value, unit)


def counted(name: str, value: Any, unit: str) -> None:
    """Writes down what was counted: exact, and the same on every machine."""
    _add(name, "counted", value, unit)


def measured(name: str, value: Any, unit: str) -> None:
    """Writes down what was measured. The latest is shown; all are kept."""
    _add(name, "measured", value, unit)


def constant(name: str, value: Any, unit: str, source: str) -> None:
    """Writes down a number to plan with (a bandwidth, a peak, a latency) and where it is from."""
    sheet = read()
    sheet["constants"][name] = {
        "value": _number(name, value),
        "unit": unit,
        "source": source,
        "time": _now(),
    }
    records.save(FILE, sheet)


def read() -> Sheet:
    return records.load(FILE, _is_sheet) or {"numbers": {}, "constants": {}}


def outcome(number: Number) -> tuple[float | None, float | None, float | None]:
    """(predicted, counted, measured): the values that count, None for what is missing."""
    values: dict[Kind, float] = {}
    for entry in number["entries"]:
        known = "measured" in values or "counted" in values
        if entry["kind"] != "predicted" or not known:  # a prediction comes before the answer
            values[entry["kind"]] = entry["value"]
    return values.get("predicted"), values.get("counted"), values.get("measured")


def table() -> Constrain:
    """A table of what was predicted, counted and measured; ratio: outcome over prediction."""
    table = Table(title="Predictions", **TABLE_STYLE)
    table.add_column("number")
    for heading in ("predicted", "counted", "measured", "ratio"):
        table.add_column(heading, justify="right")
    for name, number in read()["numbers"].items():
        predicted, counted, measured = outcome(number)
        ratio = _ratio(predicted, counted, measured)
        # A measured value that is whole by chance gets three digits all the same.
        measured = None if measured is None else float(measured)
        values = (show(value, number["unit"]) for value in (predicted, counted, measured))
        table.add_row(name, *values, "" if ratio is None else f"{ratio:.2f}")
    return Constrain(table, WIDTH)


def constants() -> Constrain:
    """A table of the constants, with the source of each."""
    table = Table("constant", "value", "source", title="Constants", **TABLE_STYLE)
    for name, entry in read()["constants"].items():
        table.add_row(name, show(entry["value"], entry["unit"]), entry["source"])
    return Constrain(table, WIDTH)


def figure() -> Axes:
    """Axes of the calibration: each outcome over its prediction as a dot, and a line at 1."""
    import matplotlib.pyplot as plt

    from common import figures

    outcomes = {name: _ratio(*outcome(number)) for name, number in read()["numbers"].items()}
    ratios = {name: ratio for name, ratio in outcomes.items() if ratio is not None}
    if not ratios:
        raise ValueError(
            "there is no calibration to draw yet: no number was predicted, then counted or measured"
        )
    _, ax = plt.subplots(figsize=(7.2, 1.4 + 0.32 * len(ratios)))
    ax.axvline(1, color="C0")
    ax.plot(list(ratios.values()), list(ratios), "o", color="C0")
    widest = max(2.2, *(max(ratio, 1 / ratio) * 1.2 for ratio in ratios.values()))
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10) if widest < 20 else [10.0**i for i in range(-6, 7)]
    ticks = [tick for tick in steps if 1 / widest < tick < widest]
    ax.set(title="How good are your predictions?", xlabel="outcome / prediction", xscale="log")
    ax.set_xlim(1 / widest, widest)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(plt.NullLocator())
    ax.invert_yaxis()
    ax.margins(y=0.6 / len(ratios))
    values = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    figures.describe(ax, f"Dots for each outcome over its prediction: {values}.")
    return ax


def show(value: float | None, unit: str) -> str:
    """The value with its unit: an int below a billion exactly, other numbers in three digits.

    Three digits take a prefix if the unit takes one. None gives "".
    """
    from matplotlib.ticker import EngFormatter

    if value is None:
        return ""
    if isinstance(value, int) and abs(value) < 1e9:
        return f"{value:,} {unit}"
    value = float(f"{value:.3g}")
    if unit in PREFIXED_UNITS:
        return EngFormatter(unit)(value)
    return f"{value:,g} {unit}" if abs(value) < 1e6 else f"{EngFormatter()(value)} {unit}"


def _add(name: str, kind: Kind, value: Any, unit: str) -> None:
    value, sheet = _number(name, value), read()
    number = sheet["numbers"].setdefault(name, {"unit": unit, "entries": []})
    if number["unit"] != unit:
        raise ValueError(
            f"{name!r} is in {number['unit']!r} in the ledger, and now in {unit!r}: use one unit"
        )
    latest = [entry["value"] for entry in number["entries"] if entry["kind"] == kind][-1:]
    if latest != [value]:  # running a cell again adds nothing
        number["entries"].append({"kind": kind, "value": value, "time": _now()})
    records.save(FILE, sheet)


def _is_sheet(record: Any) -> bool:
    try:
        for number in record["numbers"].values():
            show(
                sum(entry["value"] for entry in number["entries"] if entry["kind"] in KINDS),
                number["unit"],
            )
        for entry in record["constants"].values():
            show(entry["value"], entry["unit"] + entry["source"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


def _number(name: str, value: Any) -> float:
    """The value that a student gave, if it is a finite number."""
    if value is Ellipsis:
        raise NotImplementedError(f"{name!r} is still ...: replace it with your number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, (bool, str)) or not math.isfinite(number):
        raise ValueError(f"{name!r} is {value!r}; the ledger takes a finite number")
    return int(number) if number.is_integer() else number


def _ratio(predicted: float | None, counted: float | None, measured: float | None) -> float | None:
    """What was measured, or else counted, over the prediction; None if that says nothing."""
    result = measured if measured is not None else counted
    return result / predicted if predicted and result and result / predicted > 0 else None


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
