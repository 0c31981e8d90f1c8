"""Lab 16's planner: what it reads from publications, and how well it predicts and ranks them."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks import planner
from common import samples
from common.lessons.scaling import cluster_model, published_runs
from common.lessons.scaling.chips import CHIPS, ESTIMATED, chip
from common.lessons.scaling.cluster_model import Cluster, Layout, Model
from common.lessons.scaling.expected import planning as ours

SMALL = Model(4, 64, 4, 4, 256, 128, 32)
STATED = {
    None: None,
    "HDR200 x8/node": 25e9,
    "1600 Gb/s RoCE per node": 25e9,
    "4x Omni-Path 100 Gb/s per node (README: 4 OmniPath links)": 6.25e9,
    "RoCE 400 Gb/s per GPU, 3-layer Clos": 50e9,
    "400 Gb/s per GPU": 50e9,
    "EFA (AWS)": None,
    "3.2 Tb/s EFA": 50e9,
    "8 x CX-7 400Gb/s": 50e9,
    "4x HDR200 per node": 12.5e9,
    "25 GB/s per gpu": 25e9,
    "4x Omni-Path per node": 6.25e9,
    "InfiniBand 200 Gb/s": None,
    "1x v5p-128": None,
}


@pytest.mark.parametrize("text", STATED)
def test_the_network_that_a_publication_states(text):
    assert published_runs.network_of(text, 8) == STATED[text]


def test_chips_are_found_by_the_names_of_publications():
    names = {"A100-80GB": "A100", "A100-40GB": "A100-40GB", "NVIDIA GB200 NVL72": "GB200"}
    assert {name: chip(name).name for name in names} == names
    assert chip("H100-96GB HBM2e 500W (Grand Teton)").watts == 500
    spellings = {"A100-SXM4-80GB": "A100", "TPUv5p": "TPU-v5p", "TPU v6e": "TPU-v6e"}
    spellings |= {"MI300X-192GB": "MI300X", "nvidia h100 pcie": "H100-PCIe", "Gaudi 2": "Gaudi2"}
    assert {name: chip(name).name for name in spellings} == spellings
    spellings |= {"A100 (40 GB)": "A100-40GB", "V100-SXM2-16GB": "V100-16GB", "v5p-128": "TPU-v5p"}
    spellings |= {"H100 NVL": "H100-NVL", "trn1.32xlarge": "Trainium", "Ascend 910B3": "910B"}
    spellings |= {"RTX 6000 Ada": "6000-Ada", "tpu-v5-lite": "TPU-v5e", "DGX B200": "B200"}
    assert {name: chip(name).name for name in spellings} == spellings
    with pytest.raises(KeyError, match="Cerebras"):
        chip("Cerebras")
    assert chip("Cerebras", 1e15).peak_flops_per_s == 1e15
    for known in CHIPS:
        assert known.best_matmul_flops_per_s < known.peak_flops_per_s and known.source
    assert not ESTIMATED - {known.name for known in CHIPS}


def test_a_row_that_says_too_little_or_contradicts_itself_is_refused():
    rows = {row["id"]: row for row in samples.published_runs()["rows"]}
    with pytest.raises(ValueError, match="640 of 320 GPUs"):
        published_runs.run_of(rows["bloom-045-187B-tp8pp10dp8-mbs4-gbs2048"])
    with pytest.raises(ValueError, match="not a dense model"):
        published_runs.run_of(rows["deepseek-v3"])


def test_layouts_as_arrays_cost_what_each_costs_alone():
    cluster = Cluster.of("A100", 64)
    every = cluster_model.layouts(Model(12, 768, 12, 12, 3072, 50_000, 1024), 64, 256)
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


DATED = {  # (GPU, model, source): how its attention was computed, if nothing is said of it
    ("A100-80GB", "GPT", "a paper (arXiv 2104.04473)"): "softmax",
    ("A100-80GB", "Llama 2 7B", "a README"): "flash",
    ("A100-80GB", "GPT", "a report of 2025"): "flash",
    ("V100-32GB", "GPT", "a report of 2025"): "softmax",
    ("MI250X", "GPT", "a README"): "flash",
}


@pytest.mark.parametrize("gpu, name, source", DATED)
def test_what_a_source_does_not_say_of_attention_follows_from_its_time(gpu, name, source):
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    row = row | {"hardware": row["hardware"] | {"gpu": gpu}, "source": source}
    row["model"] = row["model"] | {"name": name}
    assert published_runs.run_of(row).layout.attention == DATED[gpu, name, source]


def test_which_notes_say_that_kernels_are_fused():
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    row = row | {"source": "a README"}
    stated = {"fused AdamW": "eager", "torch.compile": "fused", "no torch.compile": "eager"}
    stated |= {"JAX, XLA": "fused", "fused norms": "fused", "unfused softmax": "eager"}
    for note, kernels in stated.items():
        assert published_runs.run_of(row | {"notes": [note]}).layout.kernels == kernels, note


def test_selective_recomputation_has_two_meanings():
    cluster, layout = Cluster.of("H100", 8), Layout(data=8, batch=8, recompute="selective")
    fsdp = Layout(data=8, batch=8, recompute="selective", half=True)
    few, many = (cluster_model.work(SMALL, cluster, each).attention_s for each in (layout, fsdp))
    assert few < many == cluster_model.work(SMALL, cluster, layout).forward_s / 2
    kept, dropped, _ = cluster_model.kept_bytes(SMALL, fsdp)
    assert dropped == kept / 2 and cluster_model.kept_bytes(SMALL, layout)[1] == 0


def test_deepspeeds_stages_send_what_every_tensor_rank_has():
    cluster = Cluster.of("A100", 64)
    sent = [
        cluster_model.hop_s(cluster, layout, cluster_model.work(SMALL, cluster, layout))
        - cluster.latency_s
        for layout in (Layout(4, 16, batch=8), Layout(4, 16, batch=8, deepspeed=True))
    ]
    assert sent[1] == pytest.approx(4 * sent[0])


def test_one_switch_joins_the_gpus_of_several_nodes():
    assert Cluster.of("GB200", 256, 4).gpus_per_node == 72
    assert Cluster.of("H100", 256, 4).gpus_per_node == 4


def test_models_with_experts_are_known_by_their_name():
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    for name in "Mixtral 8x7B", "Qwen3_30B_a3B", "GPT OSS 120B", "DeepSeek MoE 16B":
        with pytest.raises(ValueError, match="not a dense model"):
            published_runs.run_of(row | {"model": row["model"] | {"name": name}})


SAID = {  # what a row says: what its layout has
    ("parallel", "fsdp", True): ("shards", 3),
    ("parallel", "sharding", "HYBRID_SHARD"): ("shards", 3),
    ("batch", "mbs", None): ("microbatch", 1),
    ("recompute", None, True): ("recompute", "full"),
    ("recompute", None, "every other layer"): ("recompute", "selective"),
    ("recompute", None, "not stated"): ("recompute", "none"),
    ("schedule", None, "ZB-H1"): ("bubble", 1 / 3),
}


@pytest.mark.parametrize("part, key, value", SAID)
def test_what_a_row_says_in_other_words(part, key, value):
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    row = row | {part: row[part] | {key: value} if key else value}
    field, want = SAID[part, key, value]
    assert getattr(published_runs.run_of(row).layout, field) == want


def test_microbatches_that_are_not_stated():
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    row["parallel"]["dp"], row["parallel"]["zero"] = 1, 3
    row["parallel"]["fsdp"] = 32  # one replica of shards on 32 GPUs
    row["batch"]["mbs"] = None  # 512 sequences of 32 ranks: no reason to fetch weights twice
    assert (
        published_runs.run_of(row).layout.data,
        published_runs.run_of(row).layout.microbatch,
    ) == (32, 16)
    row["batch"]["grad_accum"] = 4
    assert published_runs.run_of(row).layout.microbatch == 4


def test_other_units_and_counts():
    row: Any = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    stated = {"step_time_ms": 2000, "samples_per_s": 256, "tokens_per_s": 2048 * 256}
    for name, value in stated.items():
        assert published_runs.run_of(row | {"measured": {name: value}}).step_s == pytest.approx(2)
    plain = {"mfu": 0.4, "mfu_kind": "6N"}, {"mfu": 0.4, "mfu_kind": "6N + 12Lhs"}
    less, more = (published_runs.run_of(row | {"measured": each}).step_s or 0 for each in plain)
    assert 0.8 * more < less < more
    statuses = {"Success": True, "CUDA out of memory": False, "Other Error": None}
    assert {s: published_runs.run_of(row | {"status": s}).fits for s in statuses} == statuses


ODD = [None, 0, -3, "1,024", "many", float("nan"), float("inf"), True, [1], {"a": 1}, 1.5, 1e30]


@pytest.mark.parametrize("part", ["model", "hardware", "parallel", "batch", "measured"])
def test_odd_values_in_a_file_end_in_a_sentence_or_a_prediction(part, tmp_path):
    row = samples.published_runs()["rows"][0]
    odd = [row | {part: value} for value in [*ODD, {}]]
    odd += [row | {part: row[part] | {key: value}} for key in row[part] for value in ODD]
    odd += [{key: value for key, value in row.items() if key != missing} for missing in row]
    path = tmp_path / "published_runs.json"
    path.write_text(json.dumps({"rows": odd}))
    found, left_out = planner.read(path)
    assert len(found) + sum(left_out.values()) == len(odd)
    assert not any("can't be understood" in reason for reason in left_out)
    step_s, fits = planner.predictions(found, ours.step_time_s, ours.memory_bytes)
    assert len(step_s) == len(found) == len(fits)


EMPTY = ["", "{", "[]", "7", '{"rows": null}', "[null, 3]", "{}", "[" * 99_999]


@pytest.mark.parametrize("text", EMPTY, ids=lambda text: text[:20])
def test_a_file_without_runs_gives_an_empty_score(text, tmp_path, monkeypatch, capsys):
    path = tmp_path / "published_runs.json"
    path.write_text(text)
    for options in [], ["--held-out", "--fit"]:
        monkeypatch.setattr("sys.argv", ["planner.py", str(path), *options])
        planner.main()
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert result["rows"] == 0 and result["median_error"] is None


def test_only_16_bits_of_tier_a_count():
    row = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    stated = {"FP8": False, "NVFP4": False, "fp32": False, "tf32": False, "bf16": True, None: True}
    stated["bf16 (fp32 grad accumulation)"] = True
    for precision, counts in stated.items():
        assert planner.counts(published_runs.run_of(row | {"precision": precision})) == counts
    assert not planner.counts(published_runs.run_of(row | {"tier": "B"}))


def test_a_mfu_in_per_cent_is_one():
    row = next(r for r in samples.published_runs()["rows"] if r["id"] == "sc21-t1-1.7B")
    shares = [
        published_runs.run_of(row | {"measured": {"mfu": share}}).step_s for share in (0.42, 42)
    ]
    assert shares[0] == pytest.approx(shares[1])


def test_the_last_line_of_the_benchmark_is_its_result(tmp_path, monkeypatch, capsys):
    path = tmp_path / "published_runs.json"
    rows = [row for row in samples.published_runs()["rows"] if "Korthikanti" in row["source"]]
    path.write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr("sys.argv", ["planner.py", str(path)])
    planner.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    keys = {"rows", "median_error", "rank_correlation", "regret", "memory_right", "by_source"}
    assert set(result) == keys and result["rows"] == 9
    assert {source["rows"] for source in result["by_source"].values()} == {1, 8}
