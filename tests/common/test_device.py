"""What this machine has, and Triton prepared before its import."""

import os
import subprocess
import sys

import pytest

from common.hardware import device
from common.paths import ROOT


def test_this_machine_is_described():
    assert device.cores() >= 1 and device.memory_bytes() > 1e8
    assert device.name() and device.describe().startswith(f"{device.cores()} cores")
    assert ("no GPU" in device.describe()) == (not device.has_gpu())


@pytest.mark.parametrize(
    "setting, want",
    [(None, False), ("", False), ("0", False), ("1", True), ("true", True), ("ON", True)],
)
def test_interprets_is_tritons_own_rule(setting, want):
    assert device.interprets(setting) == want


@pytest.mark.parametrize(
    "gpu, setting, capability, want",
    [
        (True, None, (9, 0), True),
        (True, None, (10, 0), True),
        (True, None, (8, 9), False),
        (True, "1", (9, 0), False),
        (False, None, (9, 0), False),
    ],
)
def test_kernels_start_early_where_they_are_compiled_for_a_gpu_that_can(
    monkeypatch, gpu, setting, capability, want
):
    monkeypatch.setattr(device, "has_gpu", lambda: gpu)
    monkeypatch.setattr(
        device.os, "environ", {} if setting is None else {"TRITON_INTERPRET": setting}
    )
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert device.starts_early() is want


def test_importing_device_imports_nothing_heavy():
    seen = "'torch' in sys.modules or 'numpy' in sys.modules"
    script = f"import sys, common.hardware.device; print({seen})"
    assert subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True) == "False\n"


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(device.os, "environ", {})
    monkeypatch.delitem(sys.modules, "triton", raising=False)


def test_triton_interprets_where_there_is_no_gpu(no_gpu):
    device.prepare_triton()
    assert os.environ["TRITON_INTERPRET"] == "1"


def test_triton_is_left_alone_where_there_is_a_gpu(no_gpu, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    device.prepare_triton()
    assert "TRITON_INTERPRET" not in os.environ


def test_a_machine_without_triton_needs_no_preparation(no_gpu, monkeypatch):
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None)
    device.prepare_triton()
    assert "TRITON_INTERPRET" not in os.environ


def test_triton_imported_too_early_is_refused(no_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", device)
    with pytest.raises(RuntimeError, match="restart the kernel and run the setup cell first"):
        device.prepare_triton()
    os.environ["TRITON_INTERPRET"] = "1"  # Triton was imported interpreting
    device.prepare_triton()


@pytest.mark.slow
def test_a_lab_whose_optimizer_imports_triton_leaves_it_to_the_next_lab():
    """PyTorch imports Triton with its first optimizer: a grader goes on with a lab of kernels."""
    pytest.importorskip("triton")
    text = (
        "import torch\nfrom common.hardware import device\ndevice.interpret_without_gpu()\n"
        "torch.optim.SGD([torch.zeros(1)], 0.1)\ndevice.prepare_triton()"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT)
