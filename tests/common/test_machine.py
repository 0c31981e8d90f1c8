"""ledger.machine: the ceilings are measured once per machine; the data sheets are dense."""

import json

import pytest
import torch
from rich.console import Console

from common.hardware import timing
from common.ledger import machine, records
from common.ledger.machine import Peaks


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path))
    monkeypatch.setattr(records, "_unsaved", {})
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    """Times that measure_ceilings was called; it takes no time here."""
    calls = []

    def measure_ceilings():
        calls.append(None)
        return Peaks(machine.name(), 40e9, {"fp32": 1e11}, 3e-6, "measured 2026-11-20")

    monkeypatch.setattr(machine, "measure_ceilings", measure_ceilings)
    return calls


def test_the_profile_is_measured_once_and_read_from_then_on(measured, folder, capsys):
    first = machine.profile()
    assert "a few seconds, once" in capsys.readouterr().out
    assert machine.profile() == first
    assert len(measured) == 1 and capsys.readouterr().out == ""
    assert json.loads((folder / "machine.json").read_text())["bandwidth_bytes_per_s"] == 40e9


def test_another_machine_is_measured_again(measured, folder):
    machine.profile()
    record = json.loads((folder / "machine.json").read_text()) | {"device": "some other"}
    (folder / "machine.json").write_text(json.dumps(record))
    assert machine.profile().device == machine.name()
    assert len(measured) == 2


@pytest.mark.parametrize("text", ["{", "{}", '{"device": 3}'])
def test_a_corrupt_profile_is_kept_aside_and_measured_again(text, measured, folder):
    (folder / "machine.json").write_text(text)
    with pytest.warns(UserWarning, match="machine.json can't be read"):
        assert machine.profile().bandwidth_bytes_per_s == 40e9
    assert (folder / "machine.json.unreadable-1").read_text() == text


def test_a_folder_that_cannot_be_written_still_gives_a_profile(measured, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="COURSE_FOLDER"):
        machine.profile()
    machine.profile()
    assert len(measured) == 1


def test_the_ceilings_are_in_base_units(monkeypatch):
    measure = timing.measure
    monkeypatch.setattr(
        timing, "measure", lambda *args, **options: measure(*args, **options | {"min_time_s": 0.01})
    )
    assert 1e7 < machine._bandwidth_bytes_per_s(torch.ones(2**16)) < 1e14
    assert 1e7 < machine._matmul_flops_per_s(torch.rand(128, 128)) < 1e16


def test_the_data_sheets_are_dense_and_have_a_source():
    assert machine.DATA_SHEETS["A100"].flops_per_s["bf16"] == 312e12
    assert (
        machine.DATA_SHEETS["H100"].flops_per_s["bf16"] == 1979e12 / 2
    )  # the sheet's figure is with sparsity
    assert machine.DATA_SHEETS["H200"].bandwidth_bytes_per_s == 4.8e12
    cards = ["T4", "A10", "A100", "L4", "L40S", "H100", "H200", "B200"] + [
        "RTX 3090",
        "RTX 4090",
        "RTX 5090",
    ]
    assert set(cards) < set(machine.DATA_SHEETS)
    for name in cards:  # the first key that is in a device's name is that device's
        assert next(key for key in machine.DATA_SHEETS if key in f"NVIDIA {name}") == name
    assert all("data sheet" in peaks.source for peaks in machine.DATA_SHEETS.values())


@pytest.mark.parametrize("name, format", [("T4", "fp16"), ("H100", "bf16")])
def test_the_format_is_that_of_the_matrix_units(name, format):
    assert machine.DATA_SHEETS[name].format == format
    assert Peaks("a CPU", 1.0, {"fp32": 1.0}, 1.0, "").format == "fp32"


def test_the_table_has_one_row_per_machine():
    console = Console(width=140)
    with console.capture() as capture:
        console.print(machine.table(*machine.DATA_SHEETS.values()))
    text = capture.get()
    assert all(peaks.device in text for peaks in machine.DATA_SHEETS.values())
    assert "3.35 TB/s" in text and "312 TFLOP/s" in text


def test_multiplications_are_counted_where_they_happen(monkeypatch):
    monkeypatch.setattr("common.hardware.device.has_gpu", lambda: False)
    assert machine.multiplications_per_s() > 1e8
