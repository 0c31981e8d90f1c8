"""Lab 16's planner: what it reads from publications, and how well it predicts and ranks them."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks import planner
from common import samples
from common.lessons import planning, runs
from common.lessons.chips import CHIPS, chip
from common.lessons.planning import Cluster, Layout, Model
from common.oracles import planning as ours

SMALL = Model(4, 64, 4, 4, 256, 128, 32)
STATED = {
    None: None,
    "HDR200 x8/node": 25e9,
    "1600 Gb/s RoCE per node": 25e9,
    "4x Omni-Path 100 Gb/s per node (README: 4 OmniPath links)": 6.25e9,
    "RoCE 400 Gb/s per GPU, 3-layer Clos": 50e9,
    "400 Gb/s per GPU": 50e9,
    "EFA (AWS)": None,
}


@pytest.mark.parametrize("text", STATED)
def test_the_network_that_a_publication_states(text):
    assert runs.network_of(text, 8) == STATED[text]


def test_chips_are_found_by_the_names_of_publications():
    names = {"A100-80GB": "A100", "A100-40GB": "A100-40GB", "NVIDIA GB200 NVL72": "GB200"}
    assert {name: chip(name).name for name in names} == names
    assert chip("H100-96GB HBM2e 500W (Grand Teton)").watts == 500
    spellings = {"A100-SXM4-80GB": "A100", "TPUv5p": "TPU-v5p", "TPU v6e": "TPU-v6e"}
    spellings |= {"MI300X-192GB": "MI300X", "nvidia h100 pcie": "H100-PCIe", "Gaudi 2": "Gaudi2"}
    assert {name: chip(name).name for name in spellings} == spellings
    with pytest.raises(KeyError, match="Cerebras"):
        chip("Cerebras")
    assert chip("Cerebras", 1e15).peak_flops_per_s == 1e15
    for known in CHIPS:
        assert known.best_matmul_flops_per_s < known.peak_flops_per_s and known.source


def test_a_row_that_says_too_little_or_contradicts_itself_is_refused():
    rows = {row["id"]: row for row in samples.published_runs()["rows"]}
    with pytest.raises(ValueError, match="640 of 320 GPUs"):
        runs.run_of(rows["bloom-045-187B-tp8pp10dp8-mbs4-gbs2048"])
    with pytest.raises(ValueError, match="not a dense model"):
        runs.run_of(rows["deepseek-v3"])


def test_layouts_as_arrays_cost_what_each_costs_alone():
    cluster = Cluster.of("A100", 64)
    every = planning.layouts(Model(12, 768, 12, 12, 3072, 50_000, 1024), 64, 256)
    model = Model(12, 768, 12, 12, 3072, 50_000, 1024)
    together = ours.step_time_s(model, cluster, every), ours.memory_bytes(model, every)
    for i in range(0, len(every), len(every) // 20):
        assert every[i].gpus == 64
        alone = ours.step_time_s(model, cluster, every[i]), ours.memory_bytes(model, every[i])
        assert np.allclose([part[i] for part in together], alone, rtol=1e-12)


def test_on_the_simulated_machine_only_flops_and_messages_cost():
    cluster = Cluster.simulated(8, 0.0, 0.0)
    flops = 6 * (SMALL.layers * SMALL.layer_weights + SMALL.end_weights) * 32 * 8
    attention = SMALL.layers * 3.5 / 3 * 6 * SMALL.hidden * 32 * 32 * 8  # fused: half a square
    got = ours.step_time_s(SMALL, cluster, Layout(data=8, batch=8))
    assert np.isclose(got * 8 * 1e12, flops + attention, rtol=1e-12)


def test_the_planner_on_published_runs():
    found, left_out = planner.read(None)
    scored = [run for run in found if planner.counts(run)]
    step_s, fits = planner.predictions(scored, *planner.planner())
    score: Any = planner.Score.of(scored, step_s, fits)
    assert score.rows > 480 and sum(left_out.values()) == 19
    assert score.median_error < 0.08 and score.rank_correlation > 0.85
    assert score.regret < 0.03 and score.memory_right > 0.92
    flat, _ = planner.predictions(scored, planner.constant(), lambda *_: 0)
    constant: Any = planner.Score.of(scored, flat, fits)
    assert constant.median_error > 2 * score.median_error


def test_the_last_line_of_the_benchmark_is_its_result(tmp_path, monkeypatch, capsys):
    path = tmp_path / "runs.json"
    rows = [row for row in samples.published_runs()["rows"] if "Korthikanti" in row["source"]]
    path.write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr("sys.argv", ["planner.py", str(path)])
    planner.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    keys = {"rows", "median_error", "rank_correlation", "regret", "memory_right", "by_source"}
    assert set(result) == keys and result["rows"] == 9
    assert {source["rows"] for source in result["by_source"].values()} == {1, 8}
