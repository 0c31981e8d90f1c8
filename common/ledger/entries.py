"""The student's own numbers (guessed, predicted, counted, measured) and constants, in a JSON file.

python -m common.ledger                    all predictions, and how good they were
python -m common.ledger --merge FILE       take over what an older copy holds
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

import rich
import rich.box
from rich.constrain import Constrain
from rich.table import Table

from common import course
from common.ledger import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "ledger.json"
Kind = Literal["guessed", "predicted", "counted", "measured"]
KINDS: tuple[Kind, ...] = ("guessed", "predicted", "counted", "measured")
HEADINGS = ("your guess", "model", "counted", "measured", "ratio")
MARKS: dict[Kind, tuple[str, str, str]] = {  # of a figure: label, mark, colour
    "guessed": ("your guess", "o", "C0"),
    "predicted": ("the model", "D", "C1"),
}
FACTOR = 2.0  # a prediction within this factor of the outcome is a good one
BIASED, MIN_BIASED = 1.3, 3  # the median ratio, and of how many numbers, to speak of a tendency
TABLE_STYLE: dict[str, Any] = {
    "title_justify": "left",
    "title_style": "bold",
    "box": rich.box.SIMPLE_HEAD,
}
WIDTH = 80  # characters that a notebook shows without cutting
PREFIXED_UNITS = ("s", "B", "B/s", "FLOP", "FLOP/s")  # shown as 12 µs, 3.35 TB/s


_open: set[str] = set()  # predictions that are still `...` in this process


class Entry(TypedDict):
    kind: Kind
    value: float
    time: str


class Number(TypedDict):
    """A number of the ledger: all that was guessed, predicted, counted and measured, in order."""

    unit: str
    entries: list[Entry]
    lab: NotRequired[str]  # "01"


class Outcome(NamedTuple):
    """The values of a number that count; None for what is missing."""

    guessed: float | None = None
    predicted: float | None = None
    counted: float | None = None
    measured: float | None = None
    late: frozenset[Kind] = frozenset()  # of guessed and predicted: what came after the outcome

    @property
    def result(self) -> float | None:
        """What was measured, or else counted."""
        return self.counted if self.measured is None else self.measured

    def ratio(self, prediction: float | None) -> float | None:
        """The result over a prediction; None if that says nothing."""
        result = self.result
        return result / prediction if prediction and result and result / prediction > 0 else None


class Constant(TypedDict):
    value: float
    unit: str
    source: str
    time: str


class Sheet(TypedDict):
    """What the file holds."""

    numbers: dict[str, Number]
    constants: dict[str, Constant]


def guess(name: str, value: Any, unit: str) -> None:
    """Writes down the reader's own guess. The last one before the first outcome counts."""
    _foretell(name, "guessed", value, unit)


def predict(name: str, value: Any, unit: str) -> None:
    """Writes down what a model predicts. The last one before the first outcome counts."""
    _foretell(name, "predicted", value, unit)


def counted(name: str, value: Any, unit: str) -> None:
    """Writes down what was counted: exact, and the same on every machine."""
    _require_prediction(name)
    _add(name, "counted", value, unit)


def measured(name: str, value: Any, unit: str) -> None:
    """Writes down what was measured. The latest is shown; all are kept."""
    _require_prediction(name)
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


def outcome(number: Number) -> Outcome:
    """The values that count: of predictions the last one in time, or else the last late one."""
    values: dict[Kind, float] = {}
    late: dict[Kind, float] = {}
    for entry in number["entries"]:
        known = "measured" in values or "counted" in values
        foretold = entry["kind"] in ("guessed", "predicted")
        (late if foretold and known else values)[entry["kind"]] = entry["value"]
    kinds = frozenset(kind for kind in late if kind not in values)
    guessed, predicted, counted, measured = (values.get(k, late.get(k)) for k in KINDS)
    return Outcome(guessed, predicted, counted, measured, kinds)


def outcomes(lab: str = "") -> dict[str, tuple[Number, Outcome]]:
    """{name: (number, its outcome)} of one lab ("01"), or of all."""
    numbers = read()["numbers"].items()
    return {
        name: (number, outcome(number))
        for name, number in numbers
        if not lab or number.get("lab", lab) == lab
    }


def table(lab: str = "") -> Constrain:
    """A table of what was guessed, predicted, counted and measured; ratio: outcome / prediction."""
    table = Table(title="Predictions", **TABLE_STYLE)
    table.add_column("number")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for name, (number, values) in outcomes(lab).items():
        ratio = values.ratio(_own(values))
        # A measured value that is whole by chance gets three digits all the same.
        exact = values._replace(measured=values.measured and float(values.measured))
        shown = []
        for kind in KINDS:
            late = " (late)" if kind in values.late else ""
            shown.append(show(getattr(exact, kind), number["unit"]) + late)
        table.add_row(name, *shown, "" if ratio is None else f"{ratio:.2f}")
    return Constrain(table, WIDTH)


def constants() -> Constrain:
    """A table of the constants, with the source of each."""
    table = Table("constant", "value", "source", title="Constants", **TABLE_STYLE)
    for name, entry in read()["constants"].items():
        table.add_row(name, show(entry["value"], entry["unit"]), entry["source"])
    return Constrain(table, WIDTH)


def figure(lab: str = "") -> Axes:
    """Axes of the calibration: each outcome over its prediction, and a line at 1.

    A disc is the reader's own guess, a diamond the model's number; hollow: it came after the
    outcome. The title says how many predictions were within a factor of two.
    """
    import matplotlib.pyplot as plt

    from common import figures

    found = _ratios(lab)
    names = list(dict.fromkeys(name for name, *_ in found))
    _, ax = plt.subplots(figsize=(7.2, 1.4 + 0.32 * max(1, len(names))))
    ax.axvline(1, color="C0")
    for kind, late in itertools.product(MARKS, (False, True)):
        chosen = [row for row in found if (row[1], row[3]) == (kind, late)]
        label, mark, colour = MARKS[kind]
        inside = {"markerfacecolor": "none", "markeredgecolor": colour} if late else {}
        style: dict[str, Any] = {"color": colour, "label": label + ", late" * late, **inside}
        if chosen:
            ax.plot(
                [row[2] for row in chosen], [names.index(row[0]) for row in chosen], mark, **style
            )
    _axis(ax, max([2.2, *(max(ratio, 1 / ratio) * 1.2 for _, _, ratio, _ in found)]))
    ax.set(title=summary(lab), xlabel="outcome / prediction")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(max(1, len(names)) - 0.4, -0.6)
    if found:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    values = ", ".join(f"{name} {ratio:.2f}" for name, _, ratio, _ in found)
    figures.describe(ax, f"{summary(lab)}. Outcome over prediction: {values or 'none yet'}.")
    return ax


def _axis(ax: Axes, widest: float) -> None:
    """A logarithmic axis of ratios from 1 / widest to widest, with ticks as people say them."""
    from matplotlib.ticker import NullLocator

    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10) if widest < 20 else [10.0**i for i in range(-6, 7)]
    ticks = [tick for tick in steps if 1 / widest < tick < widest]
    ax.set_xscale("log")
    ax.set_xlim(1 / widest, widest)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())


def summary(lab: str = "") -> str:
    """How good the predictions were, in a line."""
    ratios = [ratio for *_, ratio, late in _ratios(lab) if not late]
    if not ratios:
        return "No number was predicted before it was counted or measured"
    good = sum(max(ratio, 1 / ratio) <= FACTOR for ratio in ratios)
    return f"Predictions within a factor of two: {good} of {len(ratios)}"


def tendencies() -> list[str]:
    """Sentences on the units for which the reader's own guesses were mostly low, or high."""
    by_unit: dict[str, list[float]] = {}
    for number, values in outcomes().values():
        ratio = values.ratio(values.guessed)
        if ratio is not None and "guessed" not in values.late:
            by_unit.setdefault(number["unit"], []).append(ratio)
    sentences = []
    for unit, ratios in by_unit.items():
        middle = statistics.median(ratios)
        if len(ratios) >= MIN_BIASED and max(middle, 1 / middle) > BIASED:
            sentences.append(f"You tend to guess {'low' if middle > 1 else 'high'} for {unit}.")
    return sentences


def merge(path: Path) -> int:
    """Take over the entries and constants of an older copy; returns how many were new."""
    other, sheet = json.loads(path.read_text(encoding="utf-8")), read()
    if not _is_sheet(other):
        raise ValueError(f"{path} is not a ledger")
    new = 0
    for name, number in other["numbers"].items():
        own = sheet["numbers"].setdefault(name, {**number, "entries": []})
        missing = [entry for entry in number["entries"] if entry not in own["entries"]]
        new += len(missing)
        own["entries"] = sorted([*missing, *own["entries"]], key=lambda entry: _when(entry["time"]))
    for name, constant in other["constants"].items():
        new += name not in sheet["constants"]
        sheet["constants"].setdefault(name, constant)
    records.save(FILE, sheet)
    return new


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


def _foretell(name: str, kind: Kind, value: Any, unit: str) -> None:
    if value is Ellipsis:
        _open.add(name)
    number = _add(name, kind, value, unit)
    _open.discard(name)
    if kind in outcome(number).late:
        known = next(
            entry for entry in number["entries"] if entry["kind"] in ("counted", "measured")
        )
        when = known["time"][:16].replace("T", " at ")
        shown = show(known["value"], unit)
        print(f"Late: {name!r} was {known['kind']} on {when}: {shown}. Yours is kept as late.")


def _require_prediction(name: str) -> None:
    if name in _open:
        raise NotImplementedError(
            f"Predict first: {name!r} is still ... in a cell above. Then run this cell again."
        )


def _add(name: str, kind: Kind, value: Any, unit: str) -> Number:
    value, sheet = _number(name, value), read()
    number = sheet["numbers"].setdefault(name, {"unit": unit, "entries": []})
    if number["unit"] != unit:
        raise ValueError(
            f"{name!r} is in {number['unit']!r} in the ledger, and now in {unit!r}: use one unit"
        )
    if lab := course.lab():
        number["lab"] = lab
    latest = [entry["value"] for entry in number["entries"] if entry["kind"] == kind][-1:]
    if latest != [value]:  # running a cell again adds nothing
        number["entries"].append({"kind": kind, "value": value, "time": _now()})
    records.save(FILE, sheet)
    return number


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


def _own(values: Outcome) -> float | None:
    """The prediction that a ratio is about: the reader's own, or else the model's."""
    return values.predicted if values.guessed is None else values.guessed


def _ratios(lab: str) -> list[tuple[str, Kind, float, bool]]:
    """(name, guessed or predicted, outcome over it, whether it was late) of all that have both."""
    kinds: tuple[Kind, ...] = ("guessed", "predicted")
    return [
        (name, kind, ratio, kind in values.late)
        for name, (_, values) in outcomes(lab).items()
        for kind in kinds
        if (ratio := values.ratio(getattr(values, kind))) is not None
    ]


def _when(time: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(time)


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")


def main(arguments: Iterable[str] | None = None) -> None:
    """What `make ledger` does: the table, a line or two, and the figure as a file."""
    parser = argparse.ArgumentParser(
        prog="python -m common.ledger",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--merge", type=Path, metavar="FILE", help="an older copy of the ledger")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.merge:
        try:
            print(f"{merge(options.merge)} entries of {options.merge} were new.")
        except (OSError, ValueError) as problem:
            raise SystemExit(f"The ledger was left as it is: {problem}") from None
    rich.print(table())
    print(". ".join([summary(), *tendencies()]))
    if _ratios(""):
        from common import figures

        figures.use_style()
        path = records.folder() / "ledger.svg"
        drawn: Any = figure().figure
        drawn.savefig(path)
        print(f"The figure is in {path}.")
