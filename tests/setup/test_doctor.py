"""The doctor: what it says of made-up machines."""

import sys

import pytest

from common.setup import doctor, environment

LAPTOP = doctor.Facts(
    system="linux",
    interpreter=".venv/bin/python",
    in_venv=True,
    python=(3, 11),
    lacking=(),
    tested="torch 2.11 to 2.15.0 and triton 3.6 to 3.9.0",
    torch_error=None,
    torch_cuda=None,
    has_gpu=False,
    gpu_in_machine=False,
    driver=None,
    toolkit=(13, 0),
    linker=(13, 5),
    triton="3.9.0",
    triton_interpret=None,
    compiler="/usr/bin/g++",
    python_headers=True,
)
SERVER = LAPTOP._replace(torch_cuda=(13, 0), has_gpu=True, gpu_in_machine=True, driver=(13, 0))
NUMPY = ("numpy", "numpy>=2.4,<2.5", "2.5.2")


@pytest.mark.parametrize(
    "facts",
    [
        LAPTOP,
        SERVER,
        LAPTOP._replace(triton_interpret="1"),
        SERVER._replace(driver=(13, 2)),
        SERVER._replace(toolkit=(13, 4), linker=(13, 5)),  # links machine code for the driver
        LAPTOP._replace(driver=(12, 4)),  # a container with the driver's library and no GPU
        LAPTOP._replace(compiler=None, python_headers=False, toolkit=None),
    ],
)  # nothing to compile for
def test_a_machine_that_has_all_is_well(facts):
    assert all(line.state == doctor.State.WELL and not line.fix for line in doctor.diagnose(facts))


@pytest.mark.parametrize(
    "facts, subject, state, finding, fix",
    [
        (
            LAPTOP._replace(lacking=(("rich", "rich>=13", None),)),
            "packages",
            doctor.State.NEEDED,
            "rich is missing",
            ".venv/bin/python -m pip install 'rich>=13'",
        ),
        (
            LAPTOP._replace(lacking=(("torch", "torch>=2.11", "2.9.0"),)),
            "packages",
            doctor.State.NEEDED,
            "torch 2.9.0",
            "'torch>=2.11'",
        ),
        (
            LAPTOP._replace(lacking=5 * (("rich", "rich>=13", None),)),
            "packages",
            doctor.State.NEEDED,
            "and 1 more",
            "-r requirements.lock",
        ),
        (
            LAPTOP._replace(lacking=5 * (("rich", "rich>=13", None),), in_venv=False),
            "packages",
            doctor.State.NEEDED,
            "and 1 more",
            "make doctor",
        ),
        (
            LAPTOP._replace(lacking=(NUMPY,)),
            "NumPy",
            doctor.State.NEEDED,
            "2.5.2 is too new for numba.cuda",
            ".venv/bin/python -m pip install 'numpy>=2.4,<2.5'",
        ),
        (
            LAPTOP._replace(torch_error="libcudart.so.13: cannot open"),
            "PyTorch",
            doctor.State.NEEDED,
            "libcudart.so.13",
            "--force-reinstall",
        ),
        (
            LAPTOP._replace(gpu_in_machine=True),
            "GPU",
            doctor.State.OPTIONAL,
            "no driver from NVIDIA",
            "ubuntu-drivers install",
        ),
        (
            SERVER._replace(has_gpu=False, torch_cuda=None),
            "GPU",
            doctor.State.OPTIONAL,
            "CPU build",
            "--torch-backend=auto torch",
        ),
        (
            SERVER._replace(has_gpu=False, driver=(12, 4)),
            "GPU",
            doctor.State.OPTIONAL,
            "built for CUDA 13.0, the driver takes up to 12.4",
            "--torch-backend=auto torch",
        ),
        (
            SERVER._replace(has_gpu=False),
            "GPU",
            doctor.State.OPTIONAL,
            "does not see it",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (
            SERVER._replace(toolkit=None),
            "CUDA compiler",
            doctor.State.NEEDED,
            "does not find one",
            "'numba-cuda[cu13]'",
        ),
        (
            SERVER._replace(driver=(12, 4)),
            "CUDA compiler",
            doctor.State.NEEDED,
            "PTX of CUDA 13.0, newer than the driver takes (12.4)",
            "'numba-cuda[cu12]' 'cuda-toolkit==12.4.*'",
        ),
        (
            SERVER._replace(toolkit=(13, 4), linker=None),
            "CUDA compiler",
            doctor.State.NEEDED,
            "PTX of CUDA 13.4",
            "'cuda-toolkit==13.0.*'",
        ),
        (
            LAPTOP._replace(system="darwin", triton=None, toolkit=None),
            "Triton",
            doctor.State.OPTIONAL,
            "does not exist for this operating system",
            "on Linux",
        ),
        (
            SERVER._replace(triton_interpret="1"),
            "Triton",
            doctor.State.OPTIONAL,
            "though there is a GPU",
            "unset TRITON_INTERPRET",
        ),
        (
            LAPTOP._replace(triton_interpret="0"),
            "Triton",
            doctor.State.OPTIONAL,
            "it must interpret",
            "unset TRITON_INTERPRET",
        ),
        (
            SERVER._replace(compiler=None),
            "C++ compiler",
            doctor.State.NEEDED,
            "it is missing",
            "apt-get install g++",
        ),
        (
            SERVER._replace(python_headers=False),
            "C++ compiler",
            doctor.State.NEEDED,
            "Python.h is missing",
            "apt-get install python3.11-dev",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_line_that_fixes_it(facts, subject, state, finding, fix):
    (line,) = [line for line in doctor.diagnose(facts) if line.subject == subject]
    assert (
        line.state == state and finding in line.finding and fix in line.fix and "\n" not in line.fix
    )
    ill = {line.subject for line in doctor.diagnose(facts) if line.state != doctor.State.WELL}
    # An old driver also concerns the CUDA compiler, a missing GPU also Triton.
    assert ill <= {subject, "GPU", "CUDA compiler", "Triton"}


def test_the_packages_line_names_the_versions_that_are_tested():
    line = doctor.packages(LAPTOP)
    assert line.finding.endswith(
        "within pyproject.toml's ranges, tested with torch 2.11 to 2.15.0 and triton 3.6 to 3.9.0"
    )


def test_a_need_makes_the_exit_code_1_and_an_option_does_not(monkeypatch, capsys):
    for facts, code in [
        (LAPTOP, 0),
        (LAPTOP._replace(gpu_in_machine=True), 0),
        (SERVER._replace(compiler=None), 1),
    ]:
        monkeypatch.setattr(doctor, "gather", lambda facts=facts: facts)
        monkeypatch.setattr(doctor.device, "describe", lambda: "a machine")
        assert doctor.main() == code
    assert "C++ compiler: sudo apt-get install g++\n" in capsys.readouterr().out


def test_the_table_shows_brackets_as_they_are_and_works_without_rich(monkeypatch, capsys):
    rows = [("CUDA compiler", doctor.State.NEEDED, "numba-cuda[cu13] is missing")]
    doctor.print_table("a machine", rows)
    monkeypatch.setitem(sys.modules, "rich", None)
    doctor.print_table("a machine", rows)
    assert capsys.readouterr().out.count("numba-cuda[cu13] is missing") == 2


def test_the_facts_of_this_machine_are_gathered():
    facts = doctor.gather()
    assert len(facts.python) == 2 and doctor.diagnose(facts)
    assert facts.tested == " and ".join(
        f"{name} {' to '.join(environment.tested(name))}" for name in ("torch", "triton")
    )
    assert doctor.numbers("13.0.88") == (13, 0)
