"""pytest's hooks: --sample and --new apply the rule, --lab takes one lab; what passes is kept."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

from common.paths import ROOT
from grading.errors import InputError
from grading.source import labs
from tests.gate import changes, selection, subjects, verdicts
from tests.gate.selection import Case, Plan
from tests.gate.subjects import Subject

NOTEBOOKS = 1  # of the labs' notebooks, how many a run draws
SLOW = 1  # of the slow tests of a folder, how many a run draws
PLAN = pytest.StashKey[Plan]()
ACCOUNT = pytest.StashKey[list[str]]()
VERDICT = "verdict"  # the property of a report that holds it
_outcomes: dict[str, bool] = {}  # {verdict: whether all phases of its test passed}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gate", "which tests run (tests/gate)")
    group.addoption(
        "--sample",
        action="store_true",
        help="run what is fast, what has changed, and a sample of the rest",
    )
    group.addoption("--new", action="store_true", help="do not run what passed before")
    group.addoption("--lab", help="run what belongs to one lab: 07, 7, autodiff or 07_autodiff")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ACCOUNT] = []
    if word := config.getoption("--lab"):
        try:
            config.option.lab = labs.resolve(word)
        except InputError as problem:
            raise pytest.UsageError(f"--lab: {problem}") from None
    if plan := getattr(config, "workerinput", {}).get("plan"):
        changed, known, seed = plan
        config.stash[PLAN] = Plan(frozenset(changed), frozenset(known), seed)
    elif config.getoption("--sample"):
        changed = changes.files(changes.base())
        config.stash[PLAN] = Plan(changed, verdicts.known(), changes.commit())
    elif config.getoption("--new"):
        config.stash[PLAN] = Plan(frozenset(), verdicts.known(), None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each process of xdist gets this one's plan: files and verdicts may change meanwhile."""
    if plan := node.config.stash.get(PLAN, None):
        node.workerinput["plan"] = (list(plan.changed), list(plan.known), plan.seed)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What has changed, and which labs depend on it."""
    plan = config.stash.get(PLAN, None)
    if plan is None or plan.seed is None:
        return []
    since = changes.base()[:12] or "no commit"
    lines = [f"gate: {len(plan.changed)} files differ from {since} (COURSE_BASE names another)."]
    for name in labs.names():
        for subject in (subjects.answers(name), subjects.notebook(name)):
            if causes := sorted(subject.changed(plan.changed)):
                others = f" and {len(causes) - 2} more" if len(causes) > 2 else ""
                lines.append(f"gate: all {subject.name}: {', '.join(causes[:2])}{others} changed.")
    return lines


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --lab, a file is not even imported that is neither about this lab nor about each lab."""
    lab = config.getoption("--lab")
    if not lab or collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    about = _labs_of(collection_path)
    return not (lab in about if about else _is_about_each(collection_path)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if lab := config.getoption("--lab"):
        _keep(config, items, [_belongs(item, lab) for item in items])
    cases = [_case(item) for item in items]
    for item, case in zip(items, cases, strict=True):
        if case.subject:
            item.user_properties.append((VERDICT, case.verdict))
    if plan := config.stash.get(PLAN, None):
        reasons = plan.reasons(cases)
        config.stash[ACCOUNT] = selection.account(cases, reasons)
        _keep(config, items, [reason in selection.RUN for reason in reasons])
    if hasattr(config, "workeroutput"):
        config.workeroutput["account"] = config.stash[ACCOUNT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[ACCOUNT] = getattr(node, "workeroutput", {}).get("account", [])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for key, value in report.user_properties:
        if key == VERDICT:
            before = _outcomes.setdefault(str(value), True)
            _outcomes[str(value)] = before and report.passed


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash[ACCOUNT]:
        terminalreporter.write_line(f"gate: {line}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remembers what passed, also where the run was interrupted: each test stands for itself."""
    if not hasattr(session.config, "workeroutput"):
        verdicts.remember(verdict for verdict, passed in _outcomes.items() if passed)


def _keep(config: pytest.Config, items: list[pytest.Item], kept: Iterable[bool]) -> None:
    pairs = list(zip(items, kept, strict=True))
    config.hook.pytest_deselected(items=[item for item, keep in pairs if not keep])
    items[:] = [item for item, keep in pairs if keep]


# Tests, as the rule sees them


def _case(item: pytest.Item) -> Case:
    """Of a test of a lab's answers, of a cell of a notebook, of a slow test, or of a fast one."""
    path = str(item.path.relative_to(ROOT))
    slow, sampled = item.get_closest_marker("slow"), item.get_closest_marker("sampled")
    if item.path.suffix == ".ipynb":
        subject = subjects.notebook(item.path.stem)
        return Case(subject, _verdict(subject, item), path, "notebooks", NOTEBOOKS)
    if sampled and (lab := _lab(item)):
        subject = subjects.answers(lab)
        group = _group(item, lab, **sampled.kwargs)
        return Case(subject, _verdict(subject, item), item.nodeid, group, *sampled.args)
    if slow:
        subject = subjects.slow(path, slow.args)
        group = f"slow in {path.rpartition('/')[0]}"
        # What depends on more than its imports is the slowest: whole pages in a browser, the gate.
        draws = 0 if slow.args else SLOW
        return Case(subject, _verdict(subject, item), item.nodeid, group, draws)
    return Case(None)


def _group(item: pytest.Item, lab: str, per: Literal["exercise", "lab", "course"]) -> str:
    """The tests from which a sample is drawn: a test function's, of one exercise, lab or course."""
    parameters, function = _parameters(item), item.name.partition("[")[0]
    if per == "course":
        return function
    if per == "lab":
        return f"{function} {lab}"
    known = parameters.get("answer")
    return f"{function} {lab} {known.exercise if known else parameters['exercise']}"


def _verdict(subject: Subject, item: pytest.Item) -> str:
    return verdicts.verdict(subject.key, item.nodeid, repr(_parameters(item).get("answer", "")))


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _lab(item: pytest.Item) -> str | None:
    """The lab that a parameter of a test names, or whose notebook it is."""
    if item.path.suffix == ".ipynb":
        return item.path.stem
    named = {value for value in _parameters(item).values() if isinstance(value, str)}
    return next(iter(named.intersection(labs.names())), None)


def _belongs(item: pytest.Item, lab: str) -> bool:
    """Whether a test is about this lab: by its parameter, or by the folder of its file."""
    named = _lab(item)
    return named == lab or (named is None and lab in _labs_of(item.path))


def _is_about_each(path: Path) -> bool:
    """Whether a test file has tests that take the labs' names as parameters."""
    return "labs.names()" in path.read_text(encoding="utf-8")


def _labs_of(path: Path) -> frozenset[str]:
    return subjects.labs_of_test(str(path.relative_to(ROOT)))
