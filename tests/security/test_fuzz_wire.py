"""Fuzzed frames: whatever a worker sends is a value or an error of the wire, and nothing else.

FUZZ=10000 tries that many of each.
"""

import contextlib
import copy
import json
import os
import random
import socket
import struct

import numpy as np
import pytest
import torch

from common.checks import show
from grading.worker.allowance import Allowance, Meter
from grading.worker.packing import Packer
from grading.worker.ranks import _validated_report
from grading.worker.transport import SocketTransport, WireClosed, WireError, WireTimeout
from grading.worker.wire import Wire

COUNT = int(os.environ.get("FUZZ", 1000))
ODD = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, "", "\0", "list", "float32", "<f8", "ref"),
    *([], {}, [[]], [None], ["ref", 0], ["ref", -1], ["tensor", []], ["scalar", ["<f8", "00"]]),
]


def values():
    """One of each kind of value that crosses, with views, shared memory and nesting."""
    base = torch.arange(24.0).reshape(2, 3, 4)
    shared = [1, "two", 3.0]
    return {
        "plain": [None, True, 7, 2.5, "é", (1, (2, 3)), range(3), slice(1, None, 2), b"bytes", 1j],
        "arrays": [np.arange(6).reshape(2, 3).T, np.float32(1.5), np.array(["a"]).shape],
        "tensors": [base, base[:, 1:], base.transpose(0, 2), base.bfloat16(), torch.float16],
        "aliases": [shared, shared, {"inner": shared, 3: {1, 2}}],
    }


def odd(rng, header):
    """A header in which one to four places hold something else, or nothing."""
    header = copy.deepcopy(header)
    for _ in range(rng.randint(1, 4)):
        holder, keys = header, list(header)
        while True:
            key = rng.choice(keys)
            inner = holder[key]
            if not isinstance(inner, (list, dict)) or not inner or rng.random() < 0.2:
                break
            holder, keys = (
                inner,
                list(inner) if isinstance(inner, dict) else list(range(len(inner))),
            )
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        if not header:
            break
    return header


def test_fuzzed_headers_are_values_or_errors_of_the_wire():
    rng, read = random.Random(3), 0
    header, buffers = Packer().pack(values())
    header = json.loads(json.dumps(header))
    for _ in range(COUNT):
        some = [
            part[: rng.randint(0, len(part))] if rng.random() < 0.1 else part for part in buffers
        ]
        try:
            show(Packer().unpack(odd(rng, header), some))
            read += 1
        except WireError:
            pass
    assert 0.02 * COUNT < read < 0.9 * COUNT  # both kinds were tried


def test_fuzzed_answers_write_nothing_beside_what_a_call_may_change():
    rng, x, kept = random.Random(4), torch.zeros(8), torch.ones(8)
    for _ in range(COUNT):
        packer = Packer()
        packer.pack([x, kept])
        answer, buffers = Packer().pack([torch.full((8,), 2.0), [x, 1]])
        with contextlib.suppress(WireError):
            packer.unpack(odd(rng, json.loads(json.dumps(answer))), buffers)
        assert (len(x), len(kept)) == (8, 8)


def frame(header, buffers):
    parts = [json.dumps(header).encode(), *(part.tobytes() for part in buffers)]
    lengths = b"".join(struct.pack("<Q", len(part)) for part in parts[1:])
    return struct.pack("<IQ", len(parts), len(parts[0])) + lengths + b"".join(parts)


def patient():
    meter = Meter(lambda: None, lambda: True)
    meter.begin(Allowance(5))
    return meter


def test_fuzzed_bytes_are_messages_or_errors_of_the_wire():
    rng, whole = random.Random(5), frame({"kind": "value", **Packer().pack([1, "a"])[0]}, [])
    for _ in range(COUNT):
        sent = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            sent[rng.randrange(len(sent))] = rng.randrange(256)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(sent[: rng.randint(1, len(sent))] if rng.random() < 0.2 else sent)
            theirs.close()
            try:
                _, packed = Wire(SocketTransport(ours)).receive(patient())
                show(Packer().unpack(*packed))
            except (WireError, WireClosed, WireTimeout):
                pass


REPORT = {
    "compute": [["F", 0.0, 1.0]],
    "spans": [["step", 0.0, 2.0]],
    "live_bytes": [[0.0, 8], [1.0, 0]],
    "live_by_category": [[0.0, [8, 0, 0, 0]]],
    "peak_by_category": [8, 0, 0, 0],
    "held_bytes": [1],
}


def test_fuzzed_reports_of_a_rank_are_refused_or_plain():
    rng = random.Random(6)
    for _ in range(COUNT):
        try:
            report = _validated_report(odd(rng, REPORT))
            assert json.dumps(report)
        except ValueError:
            pass


@pytest.mark.parametrize("length", [0, 1, 11, 12, 20])
def test_a_frame_that_ends_too_early_says_that_the_other_side_is_gone(length):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame({"kind": "value", **Packer().pack(1)[0]}, [])[:length])
        theirs.close()
        with pytest.raises(WireClosed):
            Wire(SocketTransport(ours)).receive(patient())
