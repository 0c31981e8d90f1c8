"""The pictures of ranks: whose numbers are in which chunk, two timelines, and the stepped ring."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from common.lessons.collectives import widget
from nogpu import ranks
from nogpu.ranks import chunks, ring

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def vectors(p, n):
    generator = torch.Generator().manual_seed(p * n)
    return [torch.randint(-9999, 9999, (n,), generator=generator).double() for _ in range(p)]


def to_the_right(dist, x):
    """Each rank's first chunk goes to its right neighbour, which adds it."""
    p, me = dist.get_world_size(), dist.get_rank()
    first = x.tensor_split(p)[0]
    received = torch.empty_like(first)
    both = [
        dist.P2POp(dist.isend, first, (me + 1) % p),
        dist.P2POp(dist.irecv, received, (me - 1) % p),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    x[: len(first)] = first + received
    return x


def test_short_messages_keep_their_values_and_long_ones_do_not():
    given = vectors(3, 9)
    messages = ranks.run(to_the_right, ranks.each(given), world_size=3).trace.messages
    assert {m.src: m.values for m in messages} == {r: given[r][:3].tolist() for r in range(3)}
    long = ranks.run(to_the_right, torch.ones(3 * 65), world_size=3).trace
    assert all(message.values is None for message in long.messages)
    assert ranks.Trace.from_dict(long.as_dict()) == long


@pytest.mark.parametrize("p, n", [(2, 5), (3, 7), (4, 8), (5, 13), (6, 30)])
def test_a_decoder_says_whose_numbers_are_summed(p, n):
    given = vectors(p, n)
    decoder, total = chunks.Decoder(given), sum(given)
    everyone = [frozenset((c, r) for r in range(p)) for c in range(p)]
    assert decoder.row(total) == everyone
    for c, chunk in enumerate((given[0] + given[1]).tensor_split(p)):
        alone = [frozenset({(c, 0), (c, 1)}) if i == c else chunks.EMPTY for i in range(p)]
        assert len(chunk) < 2 or decoder.row(chunk.tolist()) == alone
    assert decoder.row(None) == decoder.row(torch.empty(0)) == [chunks.EMPTY] * p
    assert decoder.row(total + 0.5)[0] is None
    assert decoder.row("text") == [chunks.EMPTY] * p


def test_the_picture_of_a_run_has_its_rounds_and_marks_the_rows_that_differ():
    given = vectors(3, 9)
    result = ranks.run(to_the_right, ranks.each(given), world_size=3)
    want = [result.returns[0], result.returns[1], sum(given)]
    ax = result.trace.draw_chunks(given, result.returns, want, title="to the right")
    assert ax is not None
    texts = [text.get_text() for text in ax.texts]
    assert {"before", "round 1 brings", "returned", "wanted", "←2", "←0", "←1"} <= set(texts)
    assert texts.count("✗") == 1
    assert ax.get_title() == "to the right"


@pytest.mark.parametrize("got", [[None] * 3, [0.0] * 3, [], [torch.zeros(2, 2)] * 3, ["a"] * 3])
def test_any_result_can_be_drawn(got):
    given = vectors(3, 9)
    trace = ranks.run(to_the_right, ranks.each(given), world_size=3).trace
    assert trace.draw_chunks(given, got, [sum(given)] * 3)


def test_many_rounds_and_no_rounds_are_drawn_and_too_many_ranks_are_not():
    trace = ranks.run(to_the_right, torch.ones(9), world_size=3).trace
    trace.messages = [
        ranks.Message(0, 1, 8, 0.0, 1.0, "send", depth=depth) for depth in range(1, 20)
    ]
    assert trace.draw_chunks(vectors(3, 9), title="many")
    trace.messages = []
    assert trace.draw_chunks(vectors(3, 9), [None] * 3, [None] * 3)
    for p, n in ((1, 4), (7, 9), (3, 0)):
        assert ranks.Trace(p).draw_chunks(vectors(p, n)) is None


def test_two_timelines_have_one_axis_of_time():
    short, long = (ranks.run(to_the_right, torch.ones(n), world_size=3).trace for n in (9, 9000))
    above, below = short.draw_beside(long)
    assert above.get_xlim() == below.get_xlim() == (0, long.time_s)
    assert (above.get_title(), below.get_title()) == ("What your program did", "What was wanted")


@pytest.mark.parametrize("p", [2, 3, 4, 5])
def test_one_start_of_a_ring_leaves_each_rank_its_own_chunk(p):
    complete = {
        (first, step): ring.own_chunks_complete(ring.after(p, first, step, p - 1))
        for first in range(p)
        for step in (1, -1)
    }
    reached = {setting for setting, count in complete.items() if count == p}
    assert (p - 1, -1) in reached and (p == 2 or reached == {(p - 1, -1)})


def test_the_widget_says_when_the_target_is_reached():
    box = widget.ring_by_rounds()
    (first, step, rounds), verdict = box.children[0].children, box.children[1]
    assert "not reached" in verdict.value
    first.value, step.value, rounds.value = -1, -1, 2
    assert "not reached" in verdict.value
    rounds.value = 3
    assert "Target reached!" in verdict.value and "4 of 4" in verdict.value
