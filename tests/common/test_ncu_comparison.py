"""make counters: a reader's own kernels, with a stand-in for Nsight Compute and without a GPU."""

import stat
import sys

import pytest

from common.hardware import device, ncu_comparison
from common.hardware import ncu as nsight
from common.paths import ROOT

device.interpret_without_gpu()  # before anything imports Triton

FAKE = """#!{python}
import csv, pickle, sys
sys.path.insert(0, {root!r})
words = sys.argv[1:]
metrics = words[words.index("--metrics") + 1].split(",")
launches = pickle.loads(open(words[words.index("--launch") + 1], "rb").read())
from common.hardware.ncu_comparison import LANGUAGES
rows = []
for number, launch in enumerate(launches):
    values = dict.fromkeys(metrics, 0)
    for counter, (_, names) in LANGUAGES[launch.language].items():
        values[names[0]] = launch.figures[counter] + {more} * (counter in {changed!r})
    rows += [[number, launch.kernel, name, "", f"{{value:,}}"] for name, value in values.items()]
with open(words[words.index("--log-file") + 1], "w") as file:
    print("==PROF== Connected to process 1", file=file)
    table = csv.writer(file, quoting=csv.QUOTE_ALL)
    table.writerow(["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
    table.writerows(rows[:{rows}])
print({says!r})
"""


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """A function that puts an ncu on the path, which says what the counts are."""

    def make(more=0, changed=(), rows=None, says=""):
        file = tmp_path / "ncu"
        file.write_text(
            FAKE.format(
                python=sys.executable, root=str(ROOT), more=more, changed=changed, rows=rows,
                says=says,
            )
        )  # fmt: skip
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(nsight, "tool", lambda: str(file))
        monkeypatch.setattr(device, "has_gpu", lambda: False)
        monkeypatch.setattr(ncu_comparison, "missing", lambda: "")

    return make


def test_what_is_missing_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
        ncu_comparison.main(["03"])
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(nsight, "tool", lambda: None)
    with pytest.raises(SystemExit, match="needs Nsight Compute's `ncu`"):
        ncu_comparison.main(["03"])


def solution(lab):
    (path,) = (ROOT / "solutions").glob(f"{lab}_*.ipynb")
    return str(path)


@pytest.fixture
def two_checks(monkeypatch):
    """The first two checks of a lab's solution alone: a test need not count them all."""

    def shorten(found, whole=ncu_comparison.counted):
        checks = [cell for cell in found if cell[0] == "check"][:2]
        return whole([cell for cell in found if cell[0] != "check" or cell in checks])

    monkeypatch.setattr(ncu_comparison, "counted", shorten)


@pytest.mark.slow
@pytest.mark.parametrize("lab, kernels", [("03", {"vector_add"}), ("04", {"differences"})])
def test_a_readers_own_kernels_are_counted(lab, kernels, ncu, two_checks, capsys):
    ncu()
    ncu_comparison.main([solution(lab)])
    lines = capsys.readouterr().out.splitlines()
    assert kernels <= {line.split()[0] for line in lines[1:]}
    assert all(line.split()[-1] == line.split()[-2] for line in lines[1:])


@pytest.fixture
def one_launch(monkeypatch):
    """A launch that was counted, in place of a lab's."""
    figures = dict.fromkeys(nsight.TILES, 0) | {"load requests": 12, "store sectors": 30}
    launch = ncu_comparison.Launch("copied", "tiles", (1,), None, [], {}, figures=figures)
    monkeypatch.setattr(ncu_comparison, "counted", lambda found: [launch])


@pytest.mark.slow
def test_what_differs_is_marked_and_explained(ncu, one_launch, capsys):
    ncu(more=-3, changed=("load requests",))
    ncu_comparison.main([solution("04")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["copied", "load", "requests", "12", "9", "differs"]
    assert lines[2].split() == ["copied", "store", "sectors", "30", "30"]
    assert lines[-1] == ncu_comparison.REASON["tiles"]


@pytest.mark.slow
def test_what_ncu_refuses_is_said(ncu, one_launch):
    ncu(rows=0, says="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    with pytest.raises(SystemExit, match="for administrators alone"):
        ncu_comparison.main(["03"])
    ncu(rows=0, says="nothing")
    with pytest.raises(SystemExit, match="ncu shows 0 kernels, and 1 were launched: nothing"):
        ncu_comparison.main(["cuda_kernels"])
    with pytest.raises(SystemExit, match="There is no notebook 'x'"):
        ncu_comparison.main(["x"])
