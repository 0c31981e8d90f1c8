"""Lab 16's planner on published training runs: how far off is it, and would it pick well?

    benchmarks/planner.py                  the runs that ship with the course
    benchmarks/planner.py RUNS.json        other runs, in the same form
    benchmarks/planner.py --held-out       each publication by constants fitted to the others
    benchmarks/planner.py --fit            fit the constants (cluster_model.Shares)

The figures of the first table and of the last line are of dense models in 16 bits whose layout is
stated (tier A). Other runs have a table of their own.
"""

import argparse
import collections
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from rich.console import Console
from rich.table import Table

from common import samples
from common.lessons.scaling import cluster_model, published_runs
from common.lessons.scaling.cluster_model import SHARES, Cluster, Layout, Model, Shares
from common.lessons.scaling.expected import planning as ours
from common.lessons.scaling.published_runs import Run

START = Shares(0.95, 0.9, 0.5, 1.5)  # round guesses: a fit begins there, and is held near them
SWEEP = 6  # layouts, and more, make a sweep
FP8_OVER_BF16 = 1.77  # the best matmuls of an H100: Bekman, as in common/lessons/scaling/chips.py
Predict = Callable[[Model, Cluster, Layout], Any]


class Score(NamedTuple):
    """How a planner did on some runs; None where there is nothing to score."""

    rows: int
    median_error: float | None
    rank_correlation: float | None  # median over sweeps
    regret: float | None  # mean over sweeps
    memory_right: float | None

    @classmethod
    def of(cls, some: Sequence[Run], step_s: dict[str, float], fits: dict[str, bool]) -> "Score":
        """step_s, fits: the planner's predictions by the row's id."""
        timed = [run for run in some if run.step_s]
        errors = [abs(step_s[run.row["id"]] / run.step_s - 1) for run in timed if run.step_s]
        swept = [_sweep(runs_, step_s) for runs_ in sweeps(timed)]
        known = [fits[run.row["id"]] == run.fits for run in some if run.fits is not None]
        return cls(
            len(timed),
            float(np.median(errors)) if errors else None,
            float(np.median([rank for rank, _ in swept])) if swept else None,
            float(np.mean([regret for _, regret in swept])) if swept else None,
            float(np.mean(known)) if known else None,
        )


def sweeps(some: Sequence[Run]) -> list[list[Run]]:
    """Runs of one model on one cluster with one batch, in six and more layouts."""
    found = collections.defaultdict(list)
    for run in some:
        found[run.source, run.model, run.cluster, run.layout.batch].append(run)
    return [group for group in found.values() if len(group) >= SWEEP]


def _sweep(some: Sequence[Run], step_s: dict[str, float]) -> tuple[float, float]:
    """(Spearman's rank correlation, regret of the layout that the planner would pick)."""
    real = np.array([run.step_s for run in some], float)
    predicted = np.array([step_s[run.row["id"]] for run in some])
    first, second = (ranks - ranks.mean() for ranks in (_ranks(real), _ranks(predicted)))
    spread = float(np.sqrt((first**2).sum() * (second**2).sum()))
    rank = float((first * second).sum()) / spread if spread else 0.0  # a constant ranks nothing
    return rank, float(real[predicted.argmin()] / real.min() - 1)


def _ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value; equal ones share the mean of their ranks."""
    return np.array([(np.sum(values < v) + np.sum(values <= v) - 1) / 2 for v in values])


def read(path: Path | None, shares: Shares = SHARES) -> tuple[list[Run], collections.Counter[str]]:
    """(the runs of a file that say enough for a planner, how many did not, by reason)."""
    found, left_out, names = [], collections.Counter(), collections.Counter()
    try:
        rows = _rows(path)
    except (OSError, ValueError, RecursionError) as problem:
        return [], collections.Counter([f"{path} can't be read: {problem}"])
    for number, row in enumerate(rows, 1):
        try:
            whole = published_runs.tidy(row, number)
            names[whole["id"]] += 1
            if names[whole["id"]] > 1:  # two rows with one name
                whole["id"] += f" ({names[whole['id']]})"
            found.append(published_runs.run_of(whole, shares))
        except ValueError as problem:
            left_out[str(problem)] += 1
        except (KeyError, TypeError, ArithmeticError, AttributeError) as problem:
            left_out[f"it can't be understood ({type(problem).__name__}: {problem})"] += 1
    return found, left_out


def _rows(path: Path | None) -> list[Any]:
    """The rows of a file: a list, or an object that has them as "rows", or one row."""
    record: Any = json.loads(path.read_text("utf-8-sig")) if path else samples.published_runs()
    rows = record.get("rows", [record]) if isinstance(record, dict) else record
    if not isinstance(rows, list):
        raise ValueError("it has no list of rows")
    return rows


def counts(run: Run) -> bool:
    """Whether a run enters the figures: dense, tier A (or none stated), 16 bits."""
    return run.row["tier"] == "A" and published_runs.in_16_bits(run.row)


def planner() -> tuple[Predict, Callable[[Model, Layout], Any]]:
    """(step_time_s, memory_bytes) of the solved lab."""
    from benchmarks.solved import solved

    names = solved("16")
    return names["step_time_s"], names["memory_bytes"]


def predictions(
    some: Sequence[Run], step_time_s: Predict, memory_bytes: Callable[[Model, Layout], Any]
) -> tuple[dict[str, float], dict[str, bool]]:
    """(seconds per step, whether it fits) by the row's id.

    A run that does not say whether it recomputes, or whether it cuts the optimizer's state, fits if
    it would fit with that.
    """
    step_s, fits = {}, {}
    for run in some:
        cluster = run.cluster
        if published_runs.LOW_PRECISION.search(run.row["precision"]):
            faster = FP8_OVER_BF16 * cluster.matmul_flops_per_s
            cluster = dataclasses.replace(cluster, matmul_flops_per_s=faster)
        seconds = float(step_time_s(run.model, cluster, run.layout))
        step_s[run.row["id"]] = seconds if np.isfinite(seconds) else 1e30  # as wrong as can be
        needed = memory_bytes(run.model, published_runs.saving(run))
        fits[run.row["id"]] = bool(cluster_model.fits(needed, cluster))
    return step_s, fits


def constant(share: float = 0.45) -> Predict:
    """A planner that knows nothing but the FLOPs: every layout reaches this share of the peak."""

    def step_time_s(model: Model, cluster: Cluster, layout: Layout) -> float:
        flops = published_runs.model_flops(model) * layout.batch * model.seq
        return flops / (share * cluster.peak_flops_per_s * cluster.gpus)

    return step_time_s


def table(title: str, scores: dict[str, Score]) -> Table:
    """One row per source."""
    shown = Table(title=title, title_justify="left")
    for column in ("source", "rows", "median error", "rank corr.", "regret", "memory right"):
        shown.add_column(column, justify="left" if column == "source" else "right")
    for source, score in scores.items():
        ranked = "" if score.rank_correlation is None else f"{score.rank_correlation:.2f}"
        shares = (score.median_error, score.regret, score.memory_right)
        error, regret, memory = ("" if s is None else f"{s:.1%}" for s in shares)
        shown.add_row(source, str(score.rows), error, ranked, regret, memory)
    return shown


def by_source(
    some: Sequence[Run], step_s: dict[str, float], fits: dict[str, bool]
) -> dict[str, Score]:
    """The score of each source."""
    names = dict.fromkeys(run.source for run in some)
    return {
        name: Score.of([run for run in some if run.source == name], step_s, fits) for name in names
    }


# Fitting, on all runs at once: objects whose fields are arrays.


class Fit:
    """Runs as arrays, to fit the four constants of Shares to some of them."""

    def __init__(self, some: Sequence[Run]) -> None:
        self.runs = [run for run in some if run.step_s]
        self.step_s = np.array([run.step_s for run in self.runs], float)
        # One publication, or one framework's, is one group: "Narayanan", "TorchTitan".
        self.groups = np.array([_group(run) for run in self.runs])
        counts = collections.Counter(self.groups.tolist())
        self.weights = np.array([counts[group] ** -0.5 for group in self.groups.tolist()])
        self.model: Any = _stacked([run.model for run in self.runs])
        self.layout: Any = _stacked([run.layout for run in self.runs])

    def predicted(self, shares: Shares) -> np.ndarray:
        """Seconds per step of all runs."""
        clusters = [published_runs.cluster_of(run.row, shares) for run in self.runs]
        return ours.step_time_s(self.model, _stacked(clusters), self.layout)

    def loss(self, shares: Shares, chosen: np.ndarray) -> float:
        """The weighted mean error, and a little for each constant's distance from its start."""
        error = np.abs(np.log(self.predicted(shares) / self.step_s))[chosen]
        error = np.where(error < 0.05, 10 * error**2 + 0.025, error)
        far = sum(np.log(a / b) ** 2 for a, b in zip(shares, START, strict=True))
        return float(np.average(error, weights=self.weights[chosen]) + 0.004 * far)

    def best(self, chosen: np.ndarray, step: float = 0.2) -> Shares:
        """The constants with the least loss, one moved at a time by ever smaller steps."""
        shares, least = START, self.loss(START, chosen)
        while step > 0.005:
            before = least
            for name in Shares._fields:
                for factor in (1 + step, 1 / (1 + step)):
                    other = shares._replace(**{name: getattr(shares, name) * factor})
                    loss = self.loss(other, chosen)
                    if loss < least:
                        shares, least = other, loss
            if least == before:
                step /= 2
        return shares

    def held_out(self) -> tuple[dict[str, float], dict[str, Shares]]:
        """(seconds by id, constants by group), fitted to all groups but the one predicted."""
        step_s, fitted = {}, {}
        for group in dict.fromkeys(self.groups.tolist()):
            fitted[group] = self.best(self.groups != group)
            predicted = self.predicted(fitted[group])
            for i in np.flatnonzero(self.groups == group):
                step_s[self.runs[i].row["id"]] = float(predicted[i])
        return step_s, fitted


def _group(run: Run) -> str:
    """The first word of a source: one publication's, or one framework's."""
    return (run.source.split() or [""])[0]


def _stacked(objects: Sequence[Any]) -> Any:
    """One object of the same kind, whose fields are arrays of these objects' fields."""
    fields = dataclasses.fields(objects[0])
    columns = {f.name: np.array([getattr(each, f.name) for each in objects]) for f in fields}
    return type(objects[0])(**columns)


def searched(step_time_s: Predict, console: Console) -> None:
    """How long it takes to plan Llama 3's 405 B on 16,384 H100s."""
    model = Model(126, 16_384, 128, 8, 53_248, 128_256, 8192, gated=True, tied=False)
    cluster = Cluster.of("H100", 16_384)
    began_s = time.perf_counter()
    every = cluster_model.layouts(model, cluster.gpus, 2048)
    step_time_s(model, cluster, every)
    took_s = time.perf_counter() - began_s
    console.print(f"search: {len(every):,} layouts of 16,384 GPUs in {took_s:.2f} s (goal: 2 s)")


def result(total: Score, scores: dict[str, Score]) -> dict[str, Any]:
    """The benchmark's last line."""
    each = {
        name: {"rows": score.rows, "median_error": score.median_error}
        for name, score in scores.items()
        if score.rows
    }
    return {**total._asdict(), "by_source": each}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?", type=Path, metavar="RUNS.json")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    console = Console(width=120)
    found, left_out = read(options.runs)
    scored = [run for run in found if counts(run)]
    others = [run for run in found if not counts(run)]
    for reason, count in left_out.items():
        console.print(f"left out, {count} rows: {reason}")
    if options.fit and any(run.step_s for run in scored):
        every = Fit(scored)
        console.print(every.best(np.ones(len(every.runs), bool)))
    step_time_s, memory_bytes = planner()
    step_s, fits = predictions(found, step_time_s, memory_bytes)
    title = "dense, 16 bits, layout stated"
    if options.held_out and len({_group(run) for run in scored if run.step_s}) > 1:
        held_out, fitted = Fit(scored).held_out()
        step_s |= held_out
        title += "; constants fitted to the other publications"
        for group, shares in fitted.items():
            console.print(f"without {group}: {shares}")
    scores = by_source(scored, step_s, fits)
    total = Score.of(scored, step_s, fits)
    flat, _ = predictions(scored, constant(), memory_bytes)
    summary = {"all": total, "all, by 45 % of peak": Score.of(scored, flat, fits)}
    console.print(table(title, scores | summary))
    if others:
        console.print(table("other runs (not in the figures)", by_source(others, step_s, fits)))
    searched(step_time_s, console)
    print(json.dumps(result(total, scores), allow_nan=False))


if __name__ == "__main__":
    main()
