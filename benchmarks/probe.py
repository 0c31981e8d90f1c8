"""Times what runs in a notebook's kernel, for benchmarks/page.py. It imports nothing heavy."""

import json
import resource
import sys
import time
from typing import Any

CONTROLS = "IntSlider", "FloatSlider", "SelectionSlider", "Dropdown", "Checkbox"

Times = tuple[float, float]  # seconds by the clock, seconds of processors


def clocks() -> Times:
    """The time, and what this process and its children that have ended took of processors."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages)


def since(began: Times) -> Times:
    """What has passed on both clocks."""
    wall_s, cpu_s = clocks()
    return wall_s - began[0], cpu_s - began[1]


class Probe:
    """The times of all cells that follow, and of each step of their widgets.

    events: IPython's.
    """

    def __init__(self, events: Any) -> None:
        self.cells: list[Times] = []
        self.steps: list[Times] = []
        self._seen: set[str] = set()
        self._began: Times | None = None
        events.register("pre_run_cell", self._begin)
        events.register("post_run_cell", self._end)

    def _begin(self, *_: object) -> None:
        self._began = clocks()

    def _end(self, *_: object) -> None:
        if self._began:  # not the cell that made this probe
            self.cells.append(since(self._began))
        if "ipywidgets" in sys.modules:
            self._move_widgets()

    def _move_widgets(self) -> None:
        """Move each control that is new by one step, and back: each draws another picture."""
        from ipywidgets.widgets import widget

        there: dict[str, Any] = dict(widget._instances)
        for key, control in there.items():
            if key not in self._seen and type(control).__name__ in CONTROLS:
                for value in neighbours(control):
                    began = clocks()
                    control.value = value  # it returns when the picture is drawn
                    self.steps.append(since(began))
        self._seen |= set(there)

    def report(self) -> str:
        """All times, as JSON."""
        return json.dumps({"cells": self.cells, "steps": self.steps})


def neighbours(control: Any) -> list[Any]:
    """The value next to a control's own, and its own."""
    value = control.value
    if isinstance(value, bool):
        return [not value, value]
    if hasattr(control, "options"):
        values = [option[1] if isinstance(option, tuple) else option for option in control.options]
        place = values.index(value)
        return [values[place - 1 if place else min(1, len(values) - 1)], value]
    other = value + control.step
    return [other if other <= control.max else value - control.step, value]
