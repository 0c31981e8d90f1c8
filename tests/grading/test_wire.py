"""The wire: values arrive as they were sent, with their aliasing; malformed data is refused."""

import json
import math
import socket
import struct
from collections import OrderedDict, defaultdict, namedtuple
from enum import StrEnum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.checks import agree
from grading.worker.allowance import Allowance, Meter
from grading.worker.limits import (
    MAX_ARRAY_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_STORAGES,
)
from grading.worker.packing import Packer
from grading.worker.transport import SocketTransport, WireClosed, WireError, WireTimeout
from grading.worker.wire import Wire


def cross(value, in_place=None):
    """A value as the other side gets it, and both packers. The header goes through JSON.

    in_place: the values that the other side may change here; None if it was not told.
    """
    here, there = Packer(), Packer()
    header, buffers = here.pack(value)
    if in_place is not None:
        header["in_place"] = here.change_only(in_place)
    return there.unpack(json.loads(json.dumps(header)), [np.array(b) for b in buffers]), here, there


def back(value, there, here):
    header, buffers = there.pack(value)
    return here.unpack(json.loads(json.dumps(header)), [np.array(b) for b in buffers])


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
)
data = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "value, plain",
    [
        (namedtuple("Point", "x y")(1, [2]), (1, [2])),
        (torch.ones(2, 2).max(0), (torch.ones(2), torch.zeros(2, dtype=torch.int64))),
        (defaultdict(int, a=1), {"a": 1}),
        (OrderedDict(b=defaultdict(list, c=[2])), {"b": {"c": [2]}}),
        (type("Stack", (list,), {})([1, 2]), [1, 2]),
        (np.array(["compute", "none"])[0], "compute"),
        (StrEnum("Limit", ["MEMORY"])("memory"), "memory"),
    ],
)
def test_a_subclass_of_a_plain_type_arrives_as_that_type(value, plain):
    arrived, _, _ = cross(value)
    assert type(arrived) is type(plain)
    agree(arrived, plain, "crossing")
    agree(value, plain, "the same in a notebook")


@pytest.mark.slow
@given(data)
def test_plain_data_arrives_alike(value):
    arrived, _, _ = cross(value)
    agree(arrived, value, "crossing")


@pytest.mark.parametrize(
    "value",
    [
        ...,
        slice(1, None, 2),
        range(3, 9, 2),
        {1, 2},
        frozenset({"a"}),
        torch.float32,
        np.dtype("int16"),
        np.float32,
        torch.Size([2, 3]),
        np.float32(1.5),
        np.int64(-3),
        np.bool_(True),
        bytearray(b"ab"),
        -0.0,
        math.inf,
    ],
    ids=repr,
)
def test_kinds_are_kept(value):
    arrived, _, _ = cross(value)
    assert type(arrived) is type(value) and arrived == value


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 3), np.float32),
        np.float64(3) * np.ones(()),
        np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2].T,
        np.broadcast_to(np.arange(3), (4, 3)),
        np.asfortranarray(np.ones((3, 4))),
        np.arange(6, dtype=np.complex64),
    ],
    ids=lambda a: str(a.shape),
)
def test_arrays_keep_shape_strides_and_values(value):
    arrived, _, _ = cross(value)
    agree(arrived, value, "crossing")
    assert arrived.size == 0 or arrived.strides == value.strides
    assert arrived.flags.writeable == value.flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(0, 3),
        torch.tensor(3.0),
        torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[1:],
        torch.arange(3.0).expand(4, 3),
        torch.randn(3, 4).to(torch.bfloat16)[:, 1:],
        torch.randn(5).to(torch.float8_e4m3fn),
        torch.ones(2, dtype=torch.complex64).conj(),
    ],
    ids=lambda t: f"{t.dtype}{tuple(t.shape)}",
)
def test_tensors_keep_shape_strides_and_values(value):
    arrived, _, _ = cross(value)
    agree(
        arrived.to(torch.complex64) if value.is_complex() else arrived.float(),
        value.to(torch.complex64).resolve_conj() if value.is_complex() else value.float(),
        "crossing",
    )
    assert arrived.dtype == value.dtype and (
        value.numel() == 0 or arrived.stride() == value.stride()
    )


def test_aliasing_is_the_same_on_both_sides():
    x = torch.zeros(3, 4)
    (a, b), _, _ = cross((x, x.T))
    a[0, 1] = 7
    assert b[1, 0] == 7
    n = x.numpy()
    (a, b), _, _ = cross((x, n))
    b[2, 3] = 5
    assert a[2, 3] == 5


def test_changes_in_place_come_back():
    x, n, some, inner = torch.zeros(6), np.zeros(6), {"a": 1}, [1]
    values = x[::2], n[1:3], some, [inner, inner]
    (tx, tn, tsome, tlist), here, there = cross(values, values)
    tx += 1
    tn[:] = 9
    tsome["b"] = 2
    tlist[0].append(3)
    back(None, there, here)
    assert x.tolist() == [1, 0, 1, 0, 1, 0] and n.tolist() == [0, 9, 9, 0, 0, 0]
    assert some == {"a": 1, "b": 2} and inner == [1, 3]


def test_what_may_not_change_comes_back_only_if_the_answer_holds_it():
    x, n, some, inner = torch.zeros(6), np.zeros(6), {"a": 1}, [1]
    (tx, tn, tsome, tlist), here, there = cross((x, n, some, [inner, inner]), [n])
    tx += 1
    tn += 2
    tsome["b"] = object()  # it can't cross, and does not have to
    tlist[0].append(3)
    header, buffers = there.pack(None)
    assert header["containers"] == [None] * 3 and header["storages"] == [None, 48]
    assert here.unpack(header, buffers) is None
    assert n.tolist() == [2.0] * 6 and x.sum() == 0 and some == {"a": 1} and inner == [1]
    got, same = back((tx[:2], tlist[1]), there, here)
    assert got.tolist() == [1, 1] and same == [1, 3]
    assert x.sum() == 0 and inner == [1]


def test_a_reference_to_what_was_not_sent_is_refused():
    _, here, there = cross(([1], [2]), ())
    header, buffers = there.pack(None)
    with pytest.raises(WireError, match="not sent"):
        here.unpack({**header, "value": ["ref", 0]}, buffers)


def test_a_result_inside_an_argument_is_a_view_of_it():
    x, n = torch.arange(12.0), np.arange(12)
    (tx, tn), here, there = cross((x, n))
    rx, rn, same = back((tx.view(3, 4).T, tn[::3], tx), there, here)
    rx[0, 0] = 100
    rn[1] = 100
    assert x[0] == 100 and n[3] == 100 and same.data_ptr() == x.data_ptr()
    assert rx.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_what_came_outlives_its_table():
    array, tensor = cross((np.arange(1000), torch.arange(1000)))[0]
    junk = [np.full(1000, 7) for _ in range(50)]
    assert array.sum() == 499500 == int(tensor.sum()) and len(junk) == 50


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: 0,
        np.array(["a", None]),
        torch.zeros(2).to_sparse(),
        np.frombuffer(b"ab", np.uint8),
        (i for i in "a"),
        torch.zeros(1, device="meta"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_value_that_is_not_data_is_refused_by_name(value):
    with pytest.raises(TypeError, match="can't cross"):
        Packer().pack(value)


def test_size_is_that_of_the_dense_array():
    huge = torch.zeros(1).expand(MAX_ARRAY_BYTES)
    with pytest.raises(WireError, match="too large"):
        Packer().pack(huge)
    with pytest.raises(WireError, match="too large"):
        Packer().unpack(
            {
                "value": ["tensor", [0, "float32", [1 << 30, 1 << 30], [0, 0], 0, False]],
                "containers": [],
                "storages": [4],
            },
            [np.zeros(4, np.uint8)],
        )


def deep(depth):
    value = None
    for _ in range(depth):
        value = ["tuple", [value]]
    return value


@pytest.mark.parametrize(
    "value",
    [
        ["tensor", [0, "float32", [9], [1], 0, False]],
        ["tensor", [0, "float32", [2], [-1], 0, False]],
        ["tensor", [0, "float32", [1], [1], 1.0, False]],
        ["tensor", [0, "float32", [-1], [1], 0, False]],
        ["tensor", [0, "object", [1], [1], 0, False]],
        ["tensor", [3, "float32", [1], [1], 0, False]],
        ["tensor", [True, "float32", [1], [1], 0, False]],
        ["array", [0, "O", [1], [8], 0, True]],
        ["array", [0, "<f8", [2], [8], 1, True]],
        ["array", [0, "<f8", [2], [-8], 0, True]],
        ["array", [0, "<f8", [1] * 40, [8] * 40, 0, True]],
        ["array", [0, "|u1", [1 << 27], ["x" * 1000], 0, True]],
        ["ref", 0],
        ["ref", -1],
        ["eval", "1"],
        ["tuple", 3],
        [],
        {"a": 1},
        ["scalar", ["<f8", "00"]],
        ["range", [1, 2, 0]],
        ["torch.dtype", "qint8"],
        ["frozenset", [["ref", 0]]],
        deep(5000),
    ],
    ids=range(23),
)
def test_forged_answers_are_refused(value):
    with pytest.raises(WireError):
        Packer().unpack(
            {"value": value, "containers": [], "storages": [16]}, [np.zeros(16, np.uint8)]
        )


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"value": 1},
        {"value": 1, "containers": [["list", []]] * 2, "storages": [None]},
        {"value": 1, "containers": [["object", []]], "storages": []},
        {"value": 1, "containers": [], "storages": [8, 8]},
    ],
    ids=str,
)
def test_forged_headers_are_refused(header):
    with pytest.raises(WireError):
        Packer().unpack(header, [np.zeros(8, np.uint8)])


def test_a_forged_write_back_stays_inside_its_storage():
    x = torch.zeros(4)
    packer = Packer()
    header, _ = packer.pack(x)
    with pytest.raises(WireError):
        packer.unpack({**header, "storages": [32]}, [np.ones(32, np.uint8)])
    with pytest.raises(WireError):
        packer.unpack(
            {
                "value": ["tensor", [0, "float32", [5], [1], 0, False]],
                "containers": [],
                "storages": [None],
            },
            [],
        )
    assert x.tolist() == [0, 0, 0, 0]


@pytest.fixture
def wires():
    ours, theirs = socket.socketpair()
    yield Wire(SocketTransport(ours)), theirs
    ours.close()
    theirs.close()


def patient(seconds):
    """A meter that goes by the clock: this process is on both ends."""
    meter = Meter(lambda: None, lambda: True)
    meter.begin(Allowance(seconds))
    return meter


def test_who_does_not_read_blocks_nobody(wires):
    wire, _ = wires
    with pytest.raises(WireTimeout):
        wire.send("call", Packer().pack(np.zeros(50 << 20, np.uint8)), patient(0.3))


@pytest.mark.parametrize(
    "come",
    [b"", b"\x01", struct.pack("<IQ", 1, 100) + b"{"],
    ids=["nothing", "a byte", "half a frame"],
)
def test_who_does_not_write_blocks_nobody(wires, come):
    wire, theirs = wires
    theirs.sendall(come)
    with pytest.raises(WireTimeout):
        wire.receive(patient(0.2))
    theirs.close()
    with pytest.raises(WireClosed):
        wire.receive(patient(60))


@pytest.mark.parametrize(
    "parts",
    [(0,), (MAX_STORAGES + 1, 1), (1, MAX_HEADER_BYTES + 1), (2, 2, MAX_FRAME_BYTES), (1, 2**63)],
    ids=str,
)
def test_a_frame_of_impossible_size_is_refused_before_it_comes(wires, parts):
    wire, theirs = wires
    theirs.sendall(struct.pack(f"<I{len(parts) - 1}Q", *parts) + bytes(16))
    with pytest.raises(WireError):
        wire.receive(patient(60))


def test_an_unrequested_frame_is_noticed(wires):
    wire, theirs = wires
    assert not wire.transport.has_unread()
    theirs.sendall(b"x")
    assert wire.transport.has_unread()


def test_the_end_is_nothing_unread(wires):
    wire, theirs = wires
    theirs.close()
    assert not wire.transport.has_unread()


def test_data_that_holds_itself_or_multiplies_is_refused():
    loop = []
    loop.append({"a": (loop,)})
    with pytest.raises(WireError, match="holds itself"):
        Packer().pack(loop)
    laughs = [0] * 10
    for _ in range(20):
        laughs = [laughs] * 10
    with pytest.raises(WireError, match="items can't cross"):
        Packer().pack(laughs)
    twice = [1, 2]
    arrived, _, _ = cross([twice, twice, {"a": twice}])
    assert arrived[0] is arrived[1] is arrived[2]["a"] and arrived[0] == [1, 2]
