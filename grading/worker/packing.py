"""Values as data: their description in JSON, and the bytes of their storages.

None, a bool, a number and a text stand for themselves. Any other value is [kind, content]; the
table KINDS, at the end, says how each kind is packed and unpacked. Arrays and tensors are views of
numbered *storages*, and a list, dict or set is a reference to a numbered container. So strides,
offsets and aliasing are the same on both sides. An answer brings only the storages and containers
that it holds, and those of the arguments that the call may change in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import EllipsisType
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from grading.worker.items import ITEMS, PLAIN, count_items
from grading.worker.limits import (
    MAX_ARRAY_BYTES,
    MAX_DEPTH,
    MAX_DIMENSIONS,
    MAX_FRAME_DENSE_BYTES,
    MAX_ITEMS,
)
from grading.worker.storages import (
    NUMBERS,
    TORCH_DTYPES,
    TORCH_NAMES,
    Storage,
    integer,
    natural,
    numpy_dtype,
    reach,
)
from grading.worker.transport import WireError

Container = list | dict | set
Packed = tuple[dict[str, Any], Sequence[np.ndarray]]  # the header, and the bytes of storages
Numbers = tuple[list[int], list[int]]  # of containers, of storages
CONTAINERS = {kind.__name__: kind for kind in (list, dict, set)}
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    RuntimeError,
    OverflowError,
)


class Packer:
    """Packs and unpacks the values of one call, whose storages both sides number alike."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.containers: list[Container] = []
        self._storage_numbers: dict[Hashable, int] = {}  # by address
        self._container_numbers: dict[Hashable, int] = {}  # by identity
        self._dense_bytes = 0
        self._in_place: Numbers = [], []  # what the other side wants to have back in any case
        self._met_containers: list[int] = []  # in this value
        self._met_storages: set[int] = set()

    def pack(self, value: Any) -> Packed:
        """The value, with the storages and containers that it holds."""
        self._dense_bytes = 0
        self._met_containers, self._met_storages = list(self._in_place[0]), set(self._in_place[1])
        packed = self.pack_value(value, 0)
        contents: dict[int, list[Any]] = {}
        for number in self._met_containers:  # packing one may add others
            if number not in contents:
                contents[number] = self._pack_contents(self.containers[number])
        containers = [contents.get(number) for number in range(len(self.containers))]
        buffers: list[np.ndarray] = []
        sizes = [self._pack_storage(*each, buffers) for each in enumerate(self.storages)]
        count_items(packed, containers)
        return {"value": packed, "containers": containers, "storages": sizes}, buffers

    def _pack_storage(self, number: int, storage: Storage, buffers: list[np.ndarray]) -> int | None:
        """Its size, and its bytes as one more of the buffers; None if the other side needs none."""
        if number not in self._met_storages:
            return None
        if storage.sent is not None and np.array_equal(storage.sent, storage.bytes):
            return None
        storage.sent = storage.bytes.copy()
        buffers.append(storage.sent)
        return storage.bytes.size

    def unpack(self, header: dict[str, Any], buffers: Iterable[np.ndarray]) -> Any:
        """The value of a message. What this side knows already is changed in place."""
        try:
            self._dense_bytes = 0
            self._in_place = header.get("in_place", self._in_place)
            count_items(header["value"], header["containers"])
            self._unpack_storages(header["storages"], list(buffers))
            for kind, _ in header["containers"][len(self.containers) :]:
                container = CONTAINERS[kind]()
                _number(container, id(container), self.containers, self._container_numbers)
            pairs = zip(self.containers, header["containers"], strict=True)
            for container, packed in pairs:
                if packed is not None:
                    self._unpack_contents(container, *packed)
            return self.unpack_value(header["value"])
        except WireError:
            raise
        except MALFORMED as error:
            raise WireError(f"{type(error).__name__}: {error}") from None

    def change_only(self, values: Sequence[Any]) -> Numbers:
        """From now on, a message changes only these values of ours in place, and copies of others.

        A student's function may change any argument. A check must see no change that it did not
        ask for: it could compute what it wants from a changed argument. Returns the numbers of the
        containers and storages of these values.
        """
        named = Packer()
        named.pack(list(values))
        numbers: Numbers = [], []
        for number, container in enumerate(self.containers):
            if id(container) in named._container_numbers:
                numbers[0].append(number)
            else:
                self.containers[number] = type(container)()  # a message brings all contents
        for number, storage in enumerate(self.storages):
            if storage.sent is None or storage.address in named._storage_numbers:
                numbers[1].append(number)
            else:
                self.storages[number] = Storage(storage.sent)
        return numbers

    def pack_value(self, value: Any, depth: int) -> Any:
        if type(value) in PLAIN:
            return value
        if depth > MAX_DEPTH:
            raise ValueError(f"a value nested more than {MAX_DEPTH} deep can't cross")
        name = _kind_of(value)
        return [name, KINDS[name].packs(self, value, depth)]

    def unpack_value(self, packed: Any) -> Any:
        if type(packed) in PLAIN:
            return packed
        name, content = packed
        kind = KINDS.get(name)
        if kind is None:
            raise WireError(f"a value of kind {name!r}")
        return kind.unpacks(self, content)

    # Containers and what holds values

    def pack_reference(self, container: Container, _depth: int) -> int:
        """Of a subclass (a defaultdict), a copy crosses that has the plain type."""
        for kind in CONTAINERS.values():
            if isinstance(container, kind) and type(container) is not kind:
                container = kind(container)
        number = _number(container, id(container), self.containers, self._container_numbers)
        self._met_containers.append(number)
        return number

    def unpack_reference(self, number: Any) -> Container:
        return self.containers[natural(number)]

    def pack_items(self, items: Iterable[Any], depth: int) -> list[Any]:
        if PLAIN.issuperset(map(type, items)):
            return list(items)
        return [self.pack_value(item, depth + 1) for item in items]

    def unpack_items(self, packed: list[Any]) -> list[Any]:
        if PLAIN.issuperset(map(type, packed)):
            return packed
        return [self.unpack_value(item) for item in packed]

    def _pack_contents(self, container: Container) -> list[Any]:
        if type(container) is not dict:
            return [type(container).__name__, self.pack_items(container, 0)]
        pairs = container.items()
        return ["dict", [[self.pack_value(k, 1), self.pack_value(v, 1)] for k, v in pairs]]

    def _unpack_contents(self, container: Container, kind: str, contents: list[Any]) -> None:
        if type(container).__name__ != kind:
            raise WireError(f"a {kind} for a {type(container).__name__}")
        if isinstance(container, dict):
            pairs = {self.unpack_value(key): self.unpack_value(item) for key, item in contents}
            container.clear()
            container.update(pairs)
        elif isinstance(container, set):
            items = set(self.unpack_items(contents))
            container.clear()
            container.update(items)
        else:
            container[:] = self.unpack_items(contents)

    # Arrays, tensors and their storages

    def pack_array(self, array: np.ndarray, _depth: int) -> list[Any]:
        if array.dtype.kind not in NUMBERS or not array.dtype.isnative:
            raise TypeError(
                f"an array of {array.dtype} can't cross: only native numbers and bools do"
            )
        storage = Storage.of(array)
        if array.size and not storage.writeable:
            raise TypeError("an array whose owner is read-only can't cross: pass a copy")
        self._count_dense(array.size * array.itemsize)
        number = self._number_of_storage(storage)
        offset = array.__array_interface__["data"][0] - storage.address if array.size else 0
        shape, strides = list(array.shape), list(array.strides)
        return [number, array.dtype.str, shape, strides, offset, array.flags.writeable]

    def unpack_array(
        self, number: int, dtype_text: str, shape: list, strides: list, offset: int, writeable: bool
    ) -> np.ndarray:
        dtype, storage = numpy_dtype(dtype_text), self.storages[natural(number)]
        self._check_view(storage, dtype.itemsize, shape, strides, offset)
        array = storage.array(dtype, tuple(shape), tuple(strides), offset)
        array.flags.writeable = writeable is True
        return array

    def pack_tensor(self, tensor: torch.Tensor, _depth: int) -> list[Any]:
        if (
            tensor.layout is not torch.strided
            or tensor.device.type != "cpu"
            or tensor.dtype not in TORCH_NAMES
        ):
            raise TypeError(
                f"a tensor with {tensor.layout}, {tensor.dtype} on {tensor.device} can't cross: "
                "only strided tensors of plain numbers on the CPU do (.cpu())"
            )
        if tensor.is_complex() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        self._count_dense(tensor.numel() * tensor.element_size())
        number = self._number_of_storage(Storage.of(tensor.detach()))
        shape, strides, offset = list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
        return [number, TORCH_NAMES[tensor.dtype], shape, strides, offset, tensor.requires_grad]

    def unpack_tensor(
        self, number: int, dtype_name: str, shape: list, strides: list, offset: int, grad: bool
    ) -> torch.Tensor:
        dtype, storage = TORCH_DTYPES[dtype_name], self.storages[natural(number)]
        strides_bytes = [natural(stride) * dtype.itemsize for stride in strides]
        offset_bytes = natural(offset) * dtype.itemsize
        self._check_view(storage, dtype.itemsize, shape, strides_bytes, offset_bytes)
        tensor = storage.tensor(dtype, shape, strides, offset)
        differentiable = dtype.is_floating_point or dtype.is_complex
        return tensor.requires_grad_(grad is True and differentiable)

    def _check_view(
        self, storage: Storage, itemsize: int, shape: Sequence, strides: Sequence, offset: int
    ) -> None:
        """A view must lie within its storage: PyTorch's set_ would enlarge the storage silently."""
        if len(shape) > MAX_DIMENSIONS or len(shape) != len(strides):
            raise WireError(f"{len(shape)} sizes with {len(strides)} strides")
        for number in (*shape, offset):
            natural(number)
        for stride in strides:
            integer(stride)
        elements = math.prod(shape)
        self._count_dense(elements * itemsize)
        low, high = reach(itemsize, shape, strides, offset)
        if elements and not 0 <= low <= high <= storage.bytes.size:
            raise WireError(f"a view of bytes {low} to {high} of a storage of {storage.bytes.size}")

    def _count_dense(self, count: int) -> None:
        self._dense_bytes += count
        if count > MAX_ARRAY_BYTES or self._dense_bytes > MAX_FRAME_DENSE_BYTES:
            raise WireError(
                f"an array of {count:,} bytes is too large to cross "
                f"(the limit is {MAX_ARRAY_BYTES:,})"
            )

    def _number_of_storage(self, storage: Storage) -> int:
        if not storage.bytes.size:  # every empty storage has the same address
            self.storages.append(storage)
            number = len(self.storages) - 1
        else:
            number = _number(storage, storage.address, self.storages, self._storage_numbers)
        self._met_storages.add(number)
        return number

    def _unpack_storages(self, sizes: list[int | None], buffers: list[np.ndarray]) -> None:
        for number, size in enumerate(sizes):
            if size is None:
                self.storages[number]  # noqa: B018  (an unknown one is an IndexError)
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
                    self._storage_numbers[storage.address] = number
            storage.sent = buffer.copy()


def _number(value: Any, key: Hashable, numbered: list[Any], numbers: dict[Hashable, int]) -> int:
    """The number of a value in a list, to which it is added if its key is new."""
    if key not in numbers:
        numbers[key] = len(numbered)
        numbered.append(value)
    return numbers[key]


def _cant_cross(value: Any) -> NoReturn:
    noun = type(value).__name__
    article = "an" if noun[0].lower() in "aeio" else "a"
    raise TypeError(
        f"{article} {noun} can't cross: return plain data (numbers, strings, lists, tuples, sets, "
        "dicts, arrays, tensors)"
    )


# The kinds of values, one row each


class Kind(NamedTuple):
    """How values of some types cross.

    packs: makes the content of (packer, value, depth). unpacks: the value of (packer, content).
    """

    types: tuple[type, ...]
    packs: Callable[[Packer, Any, int], Any]
    unpacks: Callable[[Packer, Any], Any]
    subclasses: bool = False  # whether values of subclasses are of this kind, too


def _items(kind: type) -> Kind:
    """The Kind of a sequence that never changes: it crosses inside the value that holds it."""
    return Kind(
        (kind,),
        Packer.pack_items,
        lambda packer, content: kind(packer.unpack_items(content)),
        subclasses=kind is tuple,  # a namedtuple arrives as a tuple
    )


def _bounds(kind: type) -> Kind:
    def packs(packer: Packer, value: Any, depth: int) -> list[Any]:
        return packer.pack_items((value.start, value.stop, value.step), depth)

    def unpacks(packer: Packer, content: Any) -> Any:
        value = kind(*map(packer.unpack_value, content))
        if kind is range and len(value) > MAX_ITEMS:
            raise WireError(f"{value} is too long to cross")
        return value

    return Kind((kind,), packs, unpacks)


def _hexadecimal(kind: type[bytes] | type[bytearray]) -> Kind:
    return Kind((kind,), lambda _, value, depth: value.hex(), lambda _, text: kind.fromhex(text))


def _pack_text(_packer: Packer, value: str, _depth: int) -> str:
    return str.__str__(value)  # of a subclass, such as np.str_


def _unpack_text(_packer: Packer, text: Any) -> str:
    if type(text) is not str:
        raise WireError(f"a string that is {text!r:.100}")
    return text


def _pack_torch_dtype(_packer: Packer, dtype: torch.dtype, _depth: int) -> str:
    return TORCH_NAMES[dtype] if dtype in TORCH_NAMES else _cant_cross(dtype)


def _pack_numpy_dtype(_packer: Packer, dtype: np.dtype, _depth: int) -> str:
    return dtype.str if dtype.kind in NUMBERS else _cant_cross(dtype)


def _pack_numpy_type(_packer: Packer, kind: type, _depth: int) -> str:
    if issubclass(kind, np.generic) and np.dtype(kind).kind in NUMBERS:
        return np.dtype(kind).str
    _cant_cross(kind)


def _pack_scalar(_packer: Packer, value: np.generic, _depth: int) -> list[str]:
    if value.dtype.kind not in NUMBERS:
        _cant_cross(value)
    return [value.dtype.str, value.tobytes().hex()]


def _unpack_scalar(_packer: Packer, content: Any) -> np.generic:
    dtype = numpy_dtype(content[0])
    return np.frombuffer(bytes.fromhex(content[1]), dtype, count=1)[0]


KINDS = {
    "ref": Kind((list, dict, set), Packer.pack_reference, Packer.unpack_reference, True),
    "array": Kind((np.ndarray,), Packer.pack_array, lambda packer, c: packer.unpack_array(*c)),
    "tensor": Kind(
        (torch.Tensor, torch.nn.Parameter),
        Packer.pack_tensor,
        lambda packer, content: packer.unpack_tensor(*content),
    ),
    **{name: _items(kind) for name, kind in ITEMS.items()},
    "slice": _bounds(slice),
    "range": _bounds(range),
    "complex": Kind(
        (complex,),
        lambda _, value, depth: [value.real, value.imag],
        lambda _, parts: complex(*parts),
    ),
    "bytes": _hexadecimal(bytes),
    "bytearray": _hexadecimal(bytearray),
    "str": Kind((str,), _pack_text, _unpack_text, True),
    "ellipsis": Kind((EllipsisType,), lambda *_: None, lambda *_: ...),
    "torch.dtype": Kind((torch.dtype,), _pack_torch_dtype, lambda _, name: TORCH_DTYPES[name]),
    "np.dtype": Kind((np.dtype,), _pack_numpy_dtype, lambda _, text: numpy_dtype(text), True),
    "np.type": Kind((type,), _pack_numpy_type, lambda _, text: numpy_dtype(text).type, True),
    "scalar": Kind((np.generic,), _pack_scalar, _unpack_scalar, True),
}
KIND_OF_TYPE = {kind: name for name, row in KINDS.items() for kind in row.types}
KINDS_OF_SUBCLASSES = {name: row.types for name, row in KINDS.items() if row.subclasses}


def _kind_of(value: Any) -> str:
    """The name of the value's kind; TypeError if it can't cross."""
    name = KIND_OF_TYPE.get(type(value))
    if name is not None:
        return name
    for name, types in KINDS_OF_SUBCLASSES.items():
        if isinstance(value, types):
            return name
    _cant_cross(value)
