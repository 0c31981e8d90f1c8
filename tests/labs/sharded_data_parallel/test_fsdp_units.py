"""Units of lab 13: what computes, what is seen of it, and the faults that the oracle names."""

import math

import matplotlib.pyplot as plt
import pytest
import torch

from common.lessons.sharded_data_parallel import fsdp_units
from common.lessons.sharded_data_parallel.expected import gathering, shards
from common.training.adam import adam
from nogpu import ranks
from nogpu.ranks.events import Collective, Message

SIZES = [40, 30, 20, 10]
OUTPUTS = [[torch.full((2, 3), 1.0 + unit)] for unit in range(4)]  # of each unit


@pytest.fixture(autouse=True)
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    plt.close("all")


def test_a_unit_computes_what_its_module_does():
    for kind in ("perceptron", "tied", "deep"):
        flats, pieces = fsdp_units.weights_of(kind, 1), fsdp_units.modules(kind)
        x, want = torch.randn(3, 64), torch.randn(0)
        torch.manual_seed(1)
        want = x
        for piece, flat in zip(pieces, flats, strict=True):
            torch.nn.utils.vector_to_parameters(flat, piece.parameters())
            want = piece(want)

        def forward(dist, kind=kind, flats=flats, x=x):
            for unit in fsdp_units.units(dist, kind, flats):
                unit.full = unit.shard
                x = unit(x)
            return x

        assert torch.allclose(ranks.run(forward, world_size=1).returns[0], want)
        assert fsdp_units.sizes_of(kind) == [len(flat) for flat in flats]


def test_a_unit_whose_weights_are_not_there_says_so():
    unit = fsdp_units.Unit(2, torch.nn.Linear(2, 2), torch.zeros(6), None)
    with pytest.raises(ValueError, match="unit 2 computes, but its weights are not gathered"):
        unit(torch.zeros(1, 2))
    unit.full = torch.zeros(6)
    unit.full.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="its weights are not gathered"):
        unit(torch.zeros(1, 2))


def test_adam_is_pytorch_s():
    weight = torch.randn(5).requires_grad_()
    ours, m, v = weight.detach().clone(), torch.zeros(5), torch.zeros(5)
    update = torch.optim.Adam([weight], 0.01, (0.9, 0.99), 1e-8)
    for step in (1, 2, 3):
        weight.grad = torch.randn(5)
        adam(ours, weight.grad, m, v, step)
        update.step()
    assert torch.allclose(ours, weight)


def trace_of(*events):
    """A Trace of two ranks in which rank 0 gathers, computes and reduce-scatters in this order."""
    calls, messages = [], []
    for number, (kind, unit) in enumerate(events):
        name = {"gather": "all_gather", "reduce": "reduce_scatter", "compute": "broadcast"}[kind]
        size = 8 * math.ceil(SIZES[unit] / 2)
        call = Collective(name, 0, 3 * (kind == "compute"), number, size, number, number)
        if kind == "compute":
            call.values = [unit, *fsdp_units.digest(OUTPUTS[unit][0])]
        else:
            both = (0, 1), (1, 0)
            messages += [Message(src, dst, size, number, number, name) for src, dst in both]
        calls.append(call)
    return ranks.Trace(2, messages=messages, collectives=calls)


def of(text):
    """Events, from "g0 c0 r0"."""
    kinds = {"g": "gather", "c": "compute", "r": "reduce"}
    return [(kinds[word[0]], int(word[1:])) for word in text.split()]


FORWARD = {
    "g0 g1 c0 g2 c1 g3 c2 c3": "",
    "g0 g1 g2 g3 c0 c1 c2 c3": "Everything is gathered at once",
    "g0 g1 g2 c0 g3 c1 c2 c3": "Prefetch of more than one unit",
    "g0 c0 g1 c1 g2 c2 g3 c3": "No prefetch: start to gather unit 1 before unit 0 computes",
    "g0 g1 c0 g1 g2 c1 g3 c2 c3": "Unit 1 is gathered 2 times in one pass",
    "c0 c1 c2 c3": "Nothing is gathered",
    "g0 g1 c0 g2 c1 c2 c3": "Units [0, 1, 2] are gathered, want [0, 1, 2, 3]",
    "g0 g1 c0 g2 c1 g3 c2": "in another number",
}
BACKWARD = {
    "g3 g2 c3 r3 g1 c2 r2 g0 c1 r1 c0 r0": "",
    "g3 g2 c3 g1 r3 c2 g0 r2 c1 r1 c0 r0": "",
    "g3 g2 c3 g1 c2 g0 c1 c0 r3 r2 r1 r0": "The whole gradient of unit 3 is kept",
    "g3 g2 c3 r3 g1 c2 r2 g0 c1 r1 c0": "are reduce-scattered, want [3, 2, 1, 0]",
}


@pytest.mark.parametrize(
    "events, says, backward",
    [(*case, False) for case in FORWARD.items()] + [(*case, True) for case in BACKWARD.items()],
)
def test_each_fault_of_gathering_is_named(monkeypatch, events, says, backward):
    monkeypatch.setattr(fsdp_units, "sizes_of", lambda kind: SIZES)
    assert fsdp_units.events(trace_of(*of(events)), 0, SIZES) == of(events)
    found = shards.events_fault(trace_of(*of(events)), "any", backward, [OUTPUTS])
    assert says in found if says else found == ""


def test_a_mark_proves_that_its_output_is_there(monkeypatch):
    monkeypatch.setattr(fsdp_units, "sizes_of", lambda kind: SIZES)
    trace = trace_of(*of("g0 g1 c0 g2 c1 g3 c2 c3"))
    other = [*OUTPUTS[:2], [OUTPUTS[2][0] + 1e-3], OUTPUTS[3]]
    assert "A mark of unit 2 does not fit" in shards.events_fault(trace, "any", False, [other])


def test_nothing_else_crosses_the_network(monkeypatch):
    monkeypatch.setattr(fsdp_units, "sizes_of", lambda kind: SIZES)
    trace = trace_of(*of("g0 g1 c0 g2 c1 g3 c2 c3"))
    trace.messages.append(Message(0, 1, 8, 9.0, 9.0, "send"))
    says = shards.events_fault(trace, "any", False, [OUTPUTS])
    assert says == "The ranks send 808 bytes, not 800: gather each unit once."


def test_only_the_healthy_program_of_the_clinic_holds_two_units():
    data = [(torch.randn(4, 64), torch.zeros(4, dtype=torch.int64)) for _ in range(4)]
    machine = {"alpha_s": 1e-7, "beta_s_per_byte": 4e-9, "flops_per_s": 1e9}
    traces = gathering.traces(data, machine)
    peaks = {name: trace.peak_by_category[0]["gathered"] / 33_280 for name, trace in traces.items()}
    assert peaks == pytest.approx({"A": 7.16, "B": 7.16, "C": 2, "D": 3}, abs=0.01)
    assert len(fsdp_units.draw_gathered(traces)) == 4


def test_the_budget_has_one_best_choice():
    widget = fsdp_units.budget()
    kinds, count = widget.children[0].children
    kinds.value, count.value = 2, 4
    title = fsdp_units.draw_budget(2, 4, 13, 80, (2, 4)).get_title()
    assert title == "ZeRO-2, 4 ranks: 72 GB, traffic 2 × weights: target reached"
    assert "does not fit" in fsdp_units.draw_budget(1, 4, 13, 80, (2, 4)).get_title()


def test_a_replicated_optimizer_is_named():
    whole = {"m": torch.zeros(11), "v": torch.zeros(11)}
    assert shards.state_fault(whole, 11, 4).startswith("A replicated optimizer")
    assert shards.state_fault({}, 11, 4).startswith("state must hold m and v")
    assert shards.state_fault({"m": torch.zeros(3), "v": torch.zeros(3)}, 11, 4) == ""


def test_shards_come_together_again():
    for n, p in ((11, 4), (3, 4), (8, 2)):
        flat = torch.randn(n)
        assert torch.equal(shards.joined(shards.cut(flat, p), n), flat)
        assert {len(shard) for shard in shards.cut(flat, p)} == {fsdp_units.padded(n, p) // p}


def test_every_number_of_a_checkpoint_is_read_once():
    for n, p, q in ((12, 4, 3), (11, 3, 5), (2, 4, 1)):
        flat = torch.arange(float(n))
        old = shards.cut(flat, p)
        read = [old[o][a:b] for r in range(q) for o, a, b in shards.pieces(n, p, r, q)]
        assert torch.equal(torch.cat(read), flat)
