"""common.ledger: nothing that was written is lost; a prediction must come before the outcome."""

import json
import os
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from rich.console import Console

from common import ledger
from common.ledger import entries, records

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path))
    monkeypatch.setattr(records, "_unsaved", {})
    monkeypatch.setattr(entries, "_open", set())
    return tmp_path


def outcome(name):
    """(predicted, counted, measured)."""
    return ledger.outcome(ledger.read()["numbers"][name])[1:4]


def shown(table):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_predicted_counted_measured():
    ledger.predict("bytes", 100, "B")
    ledger.counted("bytes", 120, "B")
    ledger.measured("bytes", 130.5, "B")
    assert outcome("bytes") == (100, 120, 130.5)
    row = next(line for line in shown(ledger.table()).splitlines() if "bytes" in line)
    assert row.split() == ["bytes", "100", "B", "120", "B", "130", "B", "1.30"]


def test_the_last_prediction_before_the_outcome_counts():
    for value in (1, 2):
        ledger.predict("x", value, "s")
    ledger.measured("x", 5, "s")
    ledger.predict("x", 5, "s")
    ledger.measured("x", 6, "s")
    assert outcome("x") == (2, None, 6)
    values = [entry["value"] for entry in ledger.read()["numbers"]["x"]["entries"]]
    assert values == [1, 2, 5, 5, 6], "all are kept"


def test_running_a_cell_again_adds_nothing():
    for _ in range(3):
        ledger.predict("x", 1, "s")
    assert len(ledger.read()["numbers"]["x"]["entries"]) == 1


def test_constants_have_a_source():
    ledger.constant("bandwidth", 3.35e12, "B/s", "data sheet")
    ledger.constant("bandwidth", 3.1e12, "B/s", "measured")
    assert "3.1 TB/s" in shown(ledger.constants()) and "measured" in shown(ledger.constants())


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (1.2e-5, "s", "12 µs"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (52_000, "elements", "52,000 elements"),
        (115_008, "lines", "115,008 lines"),
        (67_108_864, "B", "67,108,864 B"),
        (1.15008e5, "lines", "115,000 lines"),
        (0.0123456, "of peak", "0.0123 of peak"),
        (4.2e9, "elements", "4.2 G elements"),
        (None, "s", ""),
    ],
)
def test_numbers_are_shown_with_their_unit(value, unit, text):
    assert ledger.show(value, unit) == text


def test_the_tables_fit_80_columns_and_lose_nothing():
    names = [
        "by columns / by rows, n = 4096",
        "elements for which mul_ takes twice as long as for one",
    ]
    for name in names:
        ledger.predict(name, 115_008, "elements")
        ledger.counted(name, 115_008, "elements")
        ledger.measured(name, 123_456.0, "elements")
        ledger.constant(
            name, 115_008, "lines", "data sheet of the machine that this was measured on, page 12"
        )
    for table, words in (
        (ledger.table(), ["ratio", "1.07", "115,008", "123,000"]),
        (ledger.constants(), ["page 12"]),
    ):
        lines = shown(table).splitlines()
        assert max(map(len, lines)) <= 80
        text = " ".join(lines)
        assert "…" not in text and all(word in text for word in " ".join(names).split() + words)


def test_a_prediction_that_is_still_missing_is_not_attempted():
    with pytest.raises(NotImplementedError, match="'x' is still ...: replace it"):
        ledger.predict("x", ..., "s")


@pytest.mark.parametrize("value", ["3", None, float("nan"), float("inf"), [1], True])
def test_only_a_finite_number_is_taken(value, folder):
    with pytest.raises(ValueError, match="'x' is .*; the ledger takes a finite number"):
        ledger.predict("x", value, "s")
    assert not (folder / "ledger.json").exists()


def test_a_second_unit_for_one_number_is_refused():
    ledger.predict("x", 1, "s")
    with pytest.raises(ValueError, match="'x' is in 's' in the ledger, and now in 'ms'"):
        ledger.measured("x", 1000, "ms")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"numbers": 3}', '{"numbers": {"x": {}}, "constants": {}}', "\xff"],
)
def test_a_corrupt_file_is_kept_aside(text, folder):
    (folder / "ledger.json").write_bytes(text.encode("latin-1"))
    with pytest.warns(
        UserWarning, match="ledger.json can't be read .*; it is kept as ledger.json.unreadable-1"
    ):
        ledger.predict("x", 1, "s")
    assert (folder / "ledger.json.unreadable-1").read_bytes() == text.encode("latin-1")
    assert outcome("x") == (1, None, None)
    (folder / "ledger.json").write_text("again")
    with pytest.warns(UserWarning, match="unreadable-2"):
        ledger.read()


def test_a_folder_that_cannot_be_written_is_one_warning_and_no_loss(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path / "file" / "folder"))
    with pytest.warns(UserWarning, match="can't be .*COURSE_FOLDER names another folder") as caught:
        ledger.predict("x", 1, "s")
        ledger.measured("x", 2, "s")
    assert len(caught) == 1
    assert outcome("x") == (1, None, 2)


def test_the_file_is_plain_json_and_no_partial_file_stays(folder):
    ledger.predict("größe", 1, "s")
    assert [path.name for path in folder.iterdir()] == ["ledger.json"]
    assert (
        json.loads((folder / "ledger.json").read_text(encoding="utf-8"))["numbers"]["größe"]["unit"]
        == "s"
    )


def test_the_figure_has_a_dot_for_each_outcome_in_multiples_of_its_prediction():
    assert "No number was predicted" in ledger.figure().get_title()
    ledger.predict("a", 2, "s")
    ledger.measured("a", 3, "s")
    ledger.predict("b", 4, "B")
    ledger.counted("b", 4, "B")
    ledger.predict("no outcome", 4, "B")
    ledger.measured("no prediction", 4, "B")
    ledger.guess("b", 1, "B")  # too late
    ax = ledger.figure()
    line, late, dots = ax.lines
    assert np.array_equal(line.get_xdata(), [1, 1])
    assert np.array_equal(dots.get_xdata(), [1.5, 1])
    assert np.array_equal(late.get_xdata(), [4]) and late.get_markerfacecolor() == "none"
    assert "factor of two: 2 of 2" in ax.get_title()


def test_an_outcome_asks_for_an_open_prediction_and_so_spoils_nothing():
    with pytest.raises(NotImplementedError):
        ledger.guess("x", ..., "B")
    for write in (ledger.counted, ledger.measured):
        with pytest.raises(NotImplementedError, match="Predict first: 'x' is still"):
            write("x", 56, "B")
    ledger.guess("x", 48, "B")
    ledger.counted("x", 56, "B")
    assert ledger.outcome(ledger.read()["numbers"]["x"]) == (48, None, 56, None, frozenset())


def test_a_late_prediction_is_kept_and_reported_as_late(capsys):
    ledger.counted("x", 56, "B")
    ledger.guess("x", 48, "B")
    assert capsys.readouterr().out.startswith("Late: 'x' was counted on 20")
    assert "48 B (late)" in shown(ledger.table())
    ledger.guess("y", 48, "B")
    ledger.counted("y", 56, "B")
    ledger.guess("y", 56, "B")  # the one in time counts
    assert ledger.outcome(ledger.read()["numbers"]["y"]).guessed == 48
    assert not capsys.readouterr().out


def test_the_guess_and_the_model_are_two_values():
    ledger.guess("x", 10, "s")
    ledger.predict("x", 20, "s")
    ledger.measured("x", 40, "s")
    row = next(line for line in shown(ledger.table()).splitlines() if " x " in line)
    assert row.split() == ["x", "10", "s", "20", "s", "40", "s", "4.00"]


def test_a_tendency_is_named_from_three_guesses_on():
    for number in range(3):
        assert not ledger.tendencies()
        ledger.guess(f"latency {number}", 1, "s")
        ledger.measured(f"latency {number}", 5, "s")
    assert ledger.tendencies() == ["You tend to guess low for s."]


def test_numbers_know_their_lab(monkeypatch, folder):
    path = folder / "03_cuda_kernels.ipynb"
    path.write_text("{}")
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    ledger.predict("x", 1, "s")
    ledger.measured("x", 1, "s")
    assert list(ledger.outcomes("03")) == ["x"] and not ledger.outcomes("04")


def test_an_older_copy_is_merged(folder, capsys):
    ledger.guess("lost", 1, "s")
    ledger.constant("bandwidth", 1, "B/s", "data sheet")
    older = (folder / "ledger.json").rename(folder / "older.json")
    ledger.measured("lost", 2, "s")
    ledger.main(["--merge", str(older)])
    assert "2 entries" in capsys.readouterr().out
    assert ledger.outcome(ledger.read()["numbers"]["lost"]) == (1, None, None, 2, frozenset())
    assert (folder / "ledger.svg").exists()
    ledger.main(["--merge", str(older)])
    assert capsys.readouterr().out.startswith("0 entries")
    older.write_text("[]")
    with pytest.raises(SystemExit, match="is not a ledger"):
        ledger.main(["--merge", str(older)])


def test_without_the_environment_variable_it_lies_in_labs(monkeypatch):
    monkeypatch.delenv("COURSE_FOLDER")
    assert records.folder() == records.LABS and records.LABS.name == "labs"


def test_importing_it_is_fast_and_takes_neither_torch_nor_matplotlib():
    code = (
        "import sys; from common.hardware import timing; from common.ledger import records\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )


def test_reading_warns_of_nothing(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ledger.read() == {"numbers": {}, "constants": {}}
    assert not list(folder.iterdir())
