"""make counters: a reader's own kernels, with a stand-in for Nsight Compute and without a GPU."""

import dataclasses
import stat
import sys

import pytest

from common import device, nsight
from common.paths import ROOT
from grading import counters

FAKE = """#!{python}
import csv, pickle, sys
sys.path.insert(0, {root!r})
words = sys.argv[1:]
metrics = words[words.index("--metrics") + 1].split(",")
launches = pickle.loads(open(words[words.index("--launch") + 1], "rb").read())
from grading.counters import LANGUAGES
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
        monkeypatch.setattr(counters, "missing", lambda: "")

    return make


def test_what_is_missing_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
        counters.main(["03"])
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(nsight, "tool", lambda: None)
    with pytest.raises(SystemExit, match="needs Nsight Compute's `ncu`"):
        counters.main(["03"])


def solution(lab):
    (path,) = (ROOT / "solutions").glob(f"{lab}_*.ipynb")
    return str(path)


@pytest.fixture
def two_checks(monkeypatch):
    """The first two checks of a lab's solution alone: a test need not count them all."""

    def shorten(lab, names, whole=counters.counted):
        checks = [cell for cell in lab.cells if "check" in cell.tags][:2]
        return whole(dataclasses.replace(lab, cells=tuple(checks)), names)

    monkeypatch.setattr(counters, "counted", shorten)


@pytest.mark.parametrize("lab, kernels", [("03", {"vector_add"}), ("04", {"differences"})])
def test_a_readers_own_kernels_are_counted(lab, kernels, ncu, two_checks, capsys):
    ncu()
    counters.main([solution(lab)])
    lines = capsys.readouterr().out.splitlines()
    assert kernels <= {line.split()[0] for line in lines[1:]}
    assert all(line.split()[-1] == line.split()[-2] for line in lines[1:])


def test_what_differs_is_marked_and_explained(ncu, two_checks, capsys):
    ncu(more=-3, changed=("load requests",))
    counters.main([solution("04")])
    lines = capsys.readouterr().out.splitlines()
    marked = [line for line in lines if line.endswith("differs")]
    assert marked and all("load requests" in line for line in marked)
    assert lines[-1] == counters.REASON["tiles"]


def test_what_ncu_refuses_is_said(ncu, two_checks):
    ncu(rows=0, says="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    with pytest.raises(SystemExit, match="for administrators alone"):
        counters.main([solution("03")])
    ncu(rows=0, says="nothing")
    with pytest.raises(SystemExit, match="ncu shows 0 kernels, and .* were launched: nothing"):
        counters.main([solution("03")])
