"""Data between the grader and a worker: JSON and raw bytes over a socket, never pickles or code.

What crosses: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, slice, range, Ellipsis, dtypes,
NumPy scalars, arrays and tensors. Arrays cross as *storages*: strides, offsets and aliasing are the same on both sides, and
what the called function changes in place (a storage, a list, a dict, a set) is changed at the caller too.
"""

import gc
import json
import math
import select
import socket
import struct
import time

import numpy as np
import torch

MAX_HEADER_BYTES = 16 << 20
MAX_FRAME_BYTES = 512 << 20
MAX_ARRAY_BYTES = 256 << 20  # of one array made dense: a stride of 0 costs nothing to send
MAX_FRAME_DENSE_BYTES = 512 << 20
MAX_ITEMS = 5_000_000  # of all lists, tuples, dicts and sets as a loop or repr would meet them
MAX_TEXT = 2000  # characters of an exception's text
MAX_STORAGES = 10_000
MAX_DEPTH = 100
READ_AHEAD_BYTES = 64 << 10  # a smaller frame goes and comes by one call of the system

PLAIN = {type(None), bool, int, float, str}  # what JSON keeps as it is
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
decode = json.JSONDecoder().decode
SEQUENCES = {
    "tuple": tuple,
    "size": torch.Size,
    "frozenset": frozenset,
}  # that don't change: they cross with what holds them
SEQUENCE_NAMES = {kind: name for name, kind in SEQUENCES.items()}

TORCH_DTYPES = {
    name: getattr(torch, name)
    for name in [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
    ]
    if hasattr(torch, name)
}
TORCH_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class WireError(ValueError):
    """What came over the wire is not in its form, or too large."""


class WireClosed(Exception):
    """The other side is gone."""


class WireTimeout(Exception):
    """The other side did not read or write in time."""


class Wire:
    """Frames over a connected socket: a kind ("call", "value", ...), a packed value (Table.pack) and its buffers."""

    def __init__(self, sock) -> None:
        self.socket = sock
        self._unread = b""

    def send(self, kind, packed, deadline=None) -> None:
        """Sends one frame. deadline: on time.monotonic's clock, None for no limit."""
        header, buffers = packed
        text = encode({"kind": kind, **header}).encode()
        lengths = [len(text), *map(len, buffers)]
        if (
            lengths[0] > MAX_HEADER_BYTES
            or sum(lengths) > MAX_FRAME_BYTES
            or len(lengths) > MAX_STORAGES
        ):
            raise WireError(
                f"{sum(lengths):,} bytes are too many to send (the limit is {MAX_FRAME_BYTES:,})"
            )
        parts = [struct.pack(f"<I{len(lengths)}Q", len(lengths), *lengths) + text, *buffers]
        if buffers and sum(lengths) < READ_AHEAD_BYTES:
            parts = [b"".join(parts)]
        for part in parts:
            self._on_time(deadline, self.socket.sendall, part)

    def receive(self, deadline=None):
        """The next frame: its kind and what Table.unpack takes."""
        count, first = struct.unpack("<IQ", self._bytes(12, deadline))
        if not 1 <= count <= MAX_STORAGES:
            raise WireError(f"a frame of {count} parts")
        lengths = (
            first,
            *struct.unpack(
                f"<{count - 1}Q", self._bytes(8 * (count - 1), deadline) if count > 1 else b""
            ),
        )
        if lengths[0] > MAX_HEADER_BYTES or sum(lengths) > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {sum(lengths):,} bytes (the limit is {MAX_FRAME_BYTES:,})")
        try:
            text = self._bytes(lengths[0], deadline).decode()
            header = _read(text)
            if "\\u" in text:  # half a surrogate pair is no text: no file could hold it
                json.dumps(header, ensure_ascii=False).encode()
            kind = header.pop("kind")
            if type(kind) is not str:
                raise ValueError("its kind is no text")
        except (ValueError, RecursionError, AttributeError, LookupError) as error:
            raise WireError(f"a header that is none: {error}") from None
        return kind, (header, [self._array(length, deadline) for length in lengths[1:]])

    def has_unread(self):
        """Whether something came that nothing has asked for."""
        if self._unread or not select.select([self.socket], [], [], 0)[0]:
            return bool(self._unread)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))  # nothing: the other side is gone
        except OSError:
            return False

    def close(self) -> None:
        self.socket.close()

    def _bytes(self, count, deadline):
        """The next bytes; what else has come by then is kept for the next call."""
        if not self._unread and count < READ_AHEAD_BYTES:
            self._unread = self._on_time(deadline, self.socket.recv, READ_AHEAD_BYTES)
        if len(self._unread) < count:
            return self._array(count, deadline).tobytes()
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _array(self, count, deadline):
        """The next bytes, in memory of their own that can be written to."""
        buffer = np.empty(count, np.uint8)
        view, done = memoryview(buffer), min(count, len(self._unread))
        view[:done], self._unread = self._unread[:done], self._unread[done:]
        while done < count:
            done += self._on_time(deadline, self.socket.recv_into, view[done:])
        return buffer

    def _on_time(self, deadline, action, argument):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WireTimeout
        if left != self.socket.gettimeout():  # setting it asks the system
            self.socket.settimeout(left)
        try:
            done = action(argument)
        except TimeoutError:
            raise WireTimeout from None
        except OSError:
            raise WireClosed from None
        if not done and done is not None:  # nothing came: the end; sendall returns None
            raise WireClosed
        return done


def _read(text):
    """What JSON says, without the collector, which looks again and again at all that is being read: many small lists take a
    quarter of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return decode(text)
    finally:
        if collects:
            gc.enable()


class Storage:
    """A piece of memory that arrays and tensors are views of, as bytes."""

    def __init__(self, memory, torch_storage=None, writeable=True) -> None:
        self.bytes, self.torch_storage, self.writeable = memory, torch_storage, writeable
        self.address = memory.ctypes.data
        self.sent = None  # the bytes as the other side last saw them

    @classmethod
    def of(cls, value):
        """The storage below an array or a tensor."""
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            return cls(np.asarray(_Memory(storage.data_ptr(), storage.nbytes(), storage)), storage)
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if isinstance(owner.base, torch.Tensor):
            return cls.of(owner.base)
        low, high = np.lib.array_utils.byte_bounds(owner)
        return cls(
            np.asarray(_Memory(low, high - low if owner.size else 0, owner)),
            writeable=owner.flags.writeable,
        )

    def array(self, dtype, shape, strides, offset):
        """A NumPy view; strides and offset in bytes."""
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self.bytes, offset=offset, strides=strides)

    def tensor(self, dtype, shape, strides, offset):
        """A torch view; strides and offset in elements."""
        if self.torch_storage is None:
            self.torch_storage = torch.from_numpy(self.bytes).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(self.torch_storage, offset, shape, strides)


class _Memory:
    """Lets NumPy see an owner's memory as bytes, and keeps the owner alive."""

    def __init__(self, address, size, owner) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


class Table:
    """The storages, lists, dicts and sets of one call, numbered the same on both sides."""

    def __init__(self) -> None:
        self.storages, self.containers = [], []
        self._storage_number, self._container_number = {}, {}
        self._dense_bytes = 0

    # ------------------------------------------------------------------ out

    def pack(self, value):
        """(header, buffers) of a value, with every storage and container that it or an earlier value of this call holds."""
        self._dense_bytes = 0
        packed = self._out(value, 0)
        contents, i = [], 0
        while i < len(self.containers):  # packing one may add others
            contents.append(self._out_contents(self.containers[i]))
            i += 1
        buffers, sizes = [], []
        for storage in self.storages:
            same = storage.sent is not None and np.array_equal(storage.sent, storage.bytes)
            sizes.append(None if same else storage.bytes.size)
            if not same:
                storage.sent = storage.bytes.copy()
                buffers.append(storage.sent)
        count_items(packed, contents)
        return {"value": packed, "containers": contents, "storages": sizes}, buffers

    def _out(self, value, depth):
        kind = type(value)
        if kind in PLAIN:
            return value
        if depth > MAX_DEPTH:
            raise ValueError(f"a value nested more than {MAX_DEPTH} deep can't cross")
        if kind in (list, dict, set):
            return ["ref", self._number(value, self.containers, self._container_number, id(value))]
        if kind in SEQUENCE_NAMES:
            return [SEQUENCE_NAMES[kind], self._out_items(value, depth + 1)]
        if kind in (slice, range):
            return [
                kind.__name__,
                [self._out(item, depth + 1) for item in (value.start, value.stop, value.step)],
            ]
        if kind is complex:
            return ["complex", [value.real, value.imag]]
        if kind in (bytes, bytearray):
            return [kind.__name__, value.hex()]
        if value is Ellipsis:
            return ["ellipsis", None]
        if kind is torch.dtype and value in TORCH_NAMES:
            return ["torch.dtype", TORCH_NAMES[value]]
        if isinstance(value, np.dtype) and value.kind in "biufc":
            return ["np.dtype", value.str]
        if (
            isinstance(value, type)
            and issubclass(value, np.generic)
            and np.dtype(value).kind in "biufc"
        ):
            return ["np.type", np.dtype(value).str]
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return ["scalar", [value.dtype.str, value.tobytes().hex()]]
        if kind is np.ndarray:
            return self._out_array(value)
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._out_tensor(value)
        raise TypeError(
            f"{_article(kind.__name__)} can't cross: return plain data (numbers, strings, lists, tuples, sets, "
            "dicts, arrays, tensors)"
        )

    def _out_contents(self, container):
        if type(container) is dict:
            return [
                "dict",
                [[self._out(key, 1), self._out(item, 1)] for key, item in container.items()],
            ]
        return [type(container).__name__, self._out_items(container, 1)]

    def _out_items(self, items, depth):
        if PLAIN.issuperset(map(type, items)):
            return list(items)
        return [self._out(item, depth) for item in items]

    def _out_array(self, array):
        if array.dtype.kind not in "biufc" or not array.dtype.isnative:
            raise TypeError(
                f"an array of {array.dtype} can't cross: only native numbers and bools do"
            )
        storage = Storage.of(array)
        if array.size and not storage.writeable:
            raise TypeError("an array whose owner is read-only can't cross: pass a copy")
        self._count_dense(array.size * array.itemsize)
        number = self._number_of_storage(storage)
        offset = array.__array_interface__["data"][0] - storage.address if array.size else 0
        return [
            "array",
            [
                number,
                array.dtype.str,
                list(array.shape),
                list(array.strides),
                offset,
                array.flags.writeable,
            ],
        ]

    def _out_tensor(self, tensor):
        if (
            tensor.layout is not torch.strided
            or tensor.device.type != "cpu"
            or tensor.dtype not in TORCH_NAMES
        ):
            raise TypeError(
                f"a tensor with {tensor.layout}, {tensor.dtype} on {tensor.device} can't cross: "
                "only strided tensors of plain numbers on the CPU do (.cpu())"
            )
        tensor = (
            tensor.resolve_conj().resolve_neg()
            if tensor.is_complex() or tensor.is_neg()
            else tensor
        )
        self._count_dense(tensor.numel() * tensor.element_size())
        number = self._number_of_storage(Storage.of(tensor.detach()))
        return [
            "tensor",
            [
                number,
                TORCH_NAMES[tensor.dtype],
                list(tensor.shape),
                list(tensor.stride()),
                tensor.storage_offset(),
                tensor.requires_grad,
            ],
        ]

    def _number_of_storage(self, storage):
        if not storage.bytes.size:  # every empty storage has the same address
            self.storages.append(storage)
            return len(self.storages) - 1
        return self._number(storage, self.storages, self._storage_number, storage.address)

    @staticmethod
    def _number(value, table, numbers, key):
        if key not in numbers:
            numbers[key] = len(table)
            table.append(value)
        return numbers[key]

    # ------------------------------------------------------------------- in

    def unpack(self, header, buffers):
        """The value of a frame; storages and containers that this side knows already are changed in place."""
        try:
            self._dense_bytes = 0
            count_items(header["value"], header["containers"])
            self._in_storages(header["storages"], list(buffers))
            known = len(self.containers)
            kinds = {"list": list, "dict": dict, "set": set}
            for kind, _ in header["containers"][known:]:
                self._number(
                    container := kinds[kind](),
                    self.containers,
                    self._container_number,
                    id(container),
                )
            for container, (kind, contents) in zip(
                self.containers, header["containers"], strict=True
            ):
                if type(container).__name__ != kind:
                    raise WireError(f"a {kind} for a {type(container).__name__}")
                self._in_contents(container, contents)
            return self._in(header["value"])
        except WireError:
            raise
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
            RuntimeError,
            OverflowError,
        ) as error:
            raise WireError(f"{type(error).__name__}: {error}") from None

    def _in_storages(self, sizes, buffers) -> None:
        for number, size in enumerate(sizes):
            if size is None:
                self.storages[number]  # noqa: B018  (must be known: IndexError)
                continue
            buffer = buffers.pop(0)
            if number < len(self.storages):
                storage = self.storages[number]
                if buffer.size != storage.bytes.size:
                    raise WireError(f"{buffer.size} bytes for a storage of {storage.bytes.size}")
                storage.bytes[:] = buffer
            else:
                storage = Storage(buffer)
                self.storages.append(storage)
                if buffer.size:
                    self._storage_number[storage.address] = number
            storage.sent = buffer.copy()

    def _in_contents(self, container, contents) -> None:
        if type(container) is dict:
            new = {self._in(key): self._in(item) for key, item in contents}
            container.clear()
            container.update(new)
        elif type(container) is set:
            new = set(self._in_items(contents))
            container.clear()
            container.update(new)
        else:
            container[:] = self._in_items(contents)

    def _in_items(self, packed):
        return (
            packed if PLAIN.issuperset(map(type, packed)) else [self._in(item) for item in packed]
        )

    def _in(self, packed):
        if type(packed) in PLAIN:
            return packed
        kind, content = packed
        if kind == "ref":
            return self.containers[_natural(content)]
        if kind in SEQUENCES:
            return SEQUENCES[kind](self._in_items(content))
        if kind == "slice":
            return slice(*(self._in(item) for item in content))
        if kind == "range":
            value = range(*(self._in(item) for item in content))
            if len(value) > MAX_ITEMS:
                raise WireError(f"{value} is too long to cross")
            return value
        if kind == "complex":
            return complex(*content)
        if kind in ("bytes", "bytearray"):
            return {"bytes": bytes, "bytearray": bytearray}[kind].fromhex(content)
        if kind == "ellipsis":
            return ...
        if kind == "torch.dtype":
            return TORCH_DTYPES[content]
        if kind == "np.dtype":
            return _numpy_dtype(content)
        if kind == "np.type":
            return _numpy_dtype(content).type
        if kind == "scalar":
            dtype = _numpy_dtype(content[0])
            return np.frombuffer(bytes.fromhex(content[1]), dtype, count=1)[0]
        if kind == "array":
            return self._in_array(*content)
        if kind == "tensor":
            return self._in_tensor(*content)
        raise WireError(f"a value of kind {kind!r}")

    def _in_array(self, number, dtype, shape, strides, offset, writeable):
        dtype, storage = _numpy_dtype(dtype), self.storages[_natural(number)]
        self._check_view(storage, dtype.itemsize, shape, strides, offset, signed=True)
        array = storage.array(dtype, tuple(shape), tuple(strides), offset)
        array.flags.writeable = writeable is True
        return array

    def _in_tensor(self, number, dtype, shape, strides, offset, requires_grad):
        dtype, storage = TORCH_DTYPES[dtype], self.storages[_natural(number)]
        size = dtype.itemsize
        self._check_view(storage, size, shape, [stride * size for stride in strides], offset * size)
        tensor = storage.tensor(dtype, shape, strides, offset)
        return tensor.requires_grad_(
            requires_grad is True and (dtype.is_floating_point or dtype.is_complex)
        )

    def _check_view(self, storage, itemsize, shape, strides, offset, signed=False) -> None:
        """A view must lie within its storage; set_ would enlarge the storage without a word."""
        if len(shape) > 32 or len(shape) != len(strides):
            raise WireError(f"{len(shape)} sizes with {len(strides)} strides")
        for number in (*shape, offset, *(() if signed else strides)):
            _natural(number)
        elements = math.prod(shape)
        self._count_dense(elements * itemsize)
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low, high = (
            offset + sum(min(r, 0) for r in reach),
            offset + sum(max(r, 0) for r in reach) + itemsize,
        )
        if elements and not 0 <= low <= high <= storage.bytes.size:
            raise WireError(f"a view of bytes {low} to {high} of a storage of {storage.bytes.size}")

    def _count_dense(self, count) -> None:
        self._dense_bytes += count
        if count > MAX_ARRAY_BYTES or self._dense_bytes > MAX_FRAME_DENSE_BYTES:
            raise WireError(
                f"an array of {count:,} bytes is too large to cross (the limit is {MAX_ARRAY_BYTES:,})"
            )


def count_items(value, containers) -> None:
    """Refuses packed data that holds itself, or is small only because it holds the same list many times over."""
    counts = {}  # of a container's items, by its number; 0 while it is being counted

    def items(packed, depth):
        if len(packed) != 2 or type(packed[0]) is not str:
            return 1  # what is no value of a known form is refused later
        kind, content = packed
        if kind in SEQUENCES:
            return sum_of(content, depth)
        if kind != "ref" or type(content) is not int or not 0 <= content < len(containers):
            return 1
        if content not in counts:
            counts[content] = 0
            of_kind, inner = containers[content]
            counts[content] = 1 + sum(
                sum_of(part, depth) for part in (inner if of_kind == "dict" else [inner])
            )
        elif not counts[content]:
            raise WireError("data that holds itself can't cross")
        return counts[content]

    def sum_of(contents, depth):
        if depth > MAX_DEPTH:
            raise WireError(f"data nested more than {MAX_DEPTH} deep can't cross")
        total = 1 + len(contents)
        for item in contents:
            if type(item) is list:
                total += items(item, depth + 1)
        if total > MAX_ITEMS:
            raise WireError(f"data of more than {MAX_ITEMS:,} items can't cross")
        return total

    if type(value) is list:
        items(value, 0)
    for number in range(len(containers)):
        items(["ref", number], 0)


def _natural(number):
    if type(number) is not int or number < 0:
        raise WireError(f"{number!r} is no natural number")
    return number


def _numpy_dtype(text):
    dtype = np.dtype(text) if type(text) is str and len(text) < 8 else None
    if dtype is None or dtype.kind not in "biufc" or not dtype.isnative:
        raise WireError(f"a dtype {text!r}")
    return dtype


def _article(noun) -> str:
    return f"an {noun}" if noun[0].lower() in "aeio" else f"a {noun}"
