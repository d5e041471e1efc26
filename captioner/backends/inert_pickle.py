"""Reads the tensors of torch's checkpoints; nothing of their pickles runs.

A pickle names classes and functions, and calls them. Here every name is a `Record`, whose call is
another that holds what it is given. A tensor is such a record, too: its numbers are read
afterwards, and its place among them is checked. So files of whole modules are read as well as state
dicts.

Both of torch's formats are read, without `torch.load`. Since 1.6 a file is a zip, with the pickle
in `NAME/data.pkl` and each storage in `NAME/data/KEY`. Before, it is five pickles (magic number,
version, machine, the objects, the keys of their storages) and then, of each storage, the number of
its elements, in 8 bytes, and the elements.
"""

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import torch
from torch import Tensor

from captioner.errors import refuse_errors
from captioner.files import opened_file
from captioner.memory_limits import check_memory

_MOST_GIVEN = 100  # Arguments of a call; torch's have ten.
_MAGIC = 0x1950A86A20F9469CFC6C
_PARTS = ("_parameters", "_buffers", "_modules")  # Of a module; not in the names of its tensors.
_TENSORS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch.nn.parameter.Parameter")
_ALIASES = ("double", "float", "half", "bfloat16", "long", "int", "short", "bool")
_TYPES = {"char": torch.int8, "byte": torch.uint8, **{n: getattr(torch, n) for n in _ALIASES}}
"""The types of storages, by the beginning of their classes' names in lower case."""


class Record:
    """What a pickle makes in place of a class, a function or an object; runs nothing.

    name: of the class or function. given: to it. parts: the items set in it, and its states, which
    other records may share: a copy for each would fill the memory.
    """

    def __init__(self, name: str, *given: Any) -> None:
        if len(given) > _MOST_GIVEN:
            raise ValueError(f"{name} is given {len(given):,} arguments")
        self.name = name
        self.given = given
        self.parts: list[dict[Any, Any]] = [{}]

    def __call__(self, *given: object) -> "Record":
        return Record(self.name, *given)

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.parts.append(state)

    def __setitem__(self, key: object, value: object) -> None:
        self.parts[0][key] = value

    def append(self, *_: object) -> None:
        """Ignore an item of a list or set of an unknown kind."""

    extend = add = append


class _Storage(NamedTuple):
    """Numbers of one type, by their key in the file; size in bytes."""

    key: str
    dtype: torch.dtype
    size: int


_TUPLES = (pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
_SETS = (pickle.FROZENSET,)
_NUMBERS = (pickle.INT, pickle.LONG, pickle.LONG1, pickle.LONG4)
_REFUSED = (pickle.PUT, pickle.BYTEARRAY8)
"""Opcodes that no checkpoint needs: one has keys of any length, the other takes memory unread."""

_Load = Callable[[Any], None]
_READERS: dict[int, _Load] = dict(pickle._Unpickler.dispatch)


def _as_list(load: _Load) -> _Load:
    """The reading of what may be slow as a key as a list, which is none.

    That is a tuple, a frozen set, or a number of more than 64 bits.
    """

    def load_list(unpickler: Any) -> None:
        load(unpickler)
        value = unpickler.stack[-1]
        if isinstance(value, tuple | frozenset):
            unpickler.stack[-1] = list(value)
        elif value.bit_length() > 64:
            unpickler.stack[-1] = [value]

    return load_list


def _refuse(_: Any) -> None:
    raise ValueError("it has numbers of memo as text, or changeable bytes")


class _Unpickler(pickle._Unpickler):
    """Builds plain values, records and storages.

    Of the module's two it is the one in Python. A key that is a tuple of tuples would be hashed in
    2^40 steps, equal frozen sets of frozen sets compared in as many, and numbers with one hash pair
    by pair: all become lists, which are no keys. Objects are made as functions are called.
    """

    dispatch: ClassVar[dict[int, _Load]] = {
        **_READERS,
        **{code[0]: _as_list(_READERS[code[0]]) for code in (*_TUPLES, *_SETS, *_NUMBERS)},
        **{code[0]: _refuse for code in _REFUSED},
        pickle.NEWOBJ[0]: _READERS[pickle.REDUCE[0]],
    }

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> object:
        """The record of a class or function."""
        return Record(f"{module}.{name}")

    def persistent_load(self, saved: Any) -> Any:
        """A storage; or the class of a module, beside which old files have its source."""
        if saved[0] == "module":
            return saved[1]
        _, made_by, key, _, count, *view = saved
        if not isinstance(key, str) or not isinstance(count, int) or any(view):
            raise ValueError("a storage has no key, no size, or is part of another")
        dtype = _TYPES[made_by.name.rpartition(".")[2].removesuffix("Storage").lower()]
        return self.storages.setdefault(key, _Storage(key, dtype, count * dtype.itemsize))


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors of modules and dictionaries in a file of `torch.save`, by their dotted names.

    Leaves out those of lists, as an optimizer's. Raises `UserError` for a file that is damaged, or
    no checkpoint.
    """
    problem = f"checkpoint {path} cannot be read"
    with opened_file(path, "checkpoint") as file, refuse_errors(problem, "download it again"):
        size = os.path.getsize(path)
        check_memory(size, f"checkpoint {path}")
        root, numbers = (_read_zip if file.read(4) == b"PK\3\4" else _read_sequence)(file)
        return _tensors(root, numbers, size)


_Numbers = Callable[[_Storage], bytes]
"""Reads the bytes of a storage."""


def _read_zip(file: BinaryIO) -> tuple[object, _Numbers]:
    """What a zip holds, and the reader of its storages."""
    archive = zipfile.ZipFile(file)
    if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
        raise ValueError("it is compressed")
    (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
    folder = name.removesuffix(".pkl")
    root = _Unpickler(io.BytesIO(archive.read(name))).load()
    return root, lambda storage: archive.read(f"{folder}/{storage.key}")


def _read_sequence(file: BinaryIO) -> tuple[object, _Numbers]:
    """What a file from before torch 1.6 holds, and the reader of its storages."""
    file.seek(0)
    head = [_Unpickler(file).load() for _ in range(3)]
    if head[0] != [_MAGIC]:
        raise ValueError("torch did not write it")
    unpickler = _Unpickler(file)
    root = unpickler.load()
    keys = _Unpickler(file).load()
    places, place = {}, file.tell()
    for key in keys:
        places[key] = place + 8
        place += 8 + unpickler.storages[key].size

    def numbers(storage: _Storage) -> bytes:
        file.seek(places[storage.key])
        return file.read(storage.size)

    return root, numbers


def _tensors(root: object, numbers: _Numbers, largest: int) -> dict[str, Tensor]:
    """The tensors below an object, by name. largest: bytes of the file."""
    flat: dict[str, Tensor] = {}  # Of each storage: all its numbers.
    tensors = {}
    for name, record in _named(root, "", set()):
        storage, first, size, strides = record.given[:4]
        if storage.key not in flat:
            content = numbers(storage) if 0 <= storage.size <= largest else b""
            if len(content) != storage.size:
                raise ValueError(f"the file ends before the tensor {name!r}")
            flat[storage.key] = torch.frombuffer(bytearray(content), dtype=storage.dtype)
        steps = zip(size, strides, strict=True)
        last = first + sum((length - 1) * stride for length, stride in steps)
        if min(first, *size, *strides, 0) < 0 or last >= len(flat[storage.key]):
            raise ValueError(f"the tensor {name!r} reaches beyond its storage")
        tensors[name] = flat[storage.key].as_strided(size, strides, first)
    return tensors


def _named(node: object, name: str, seen: set[int]) -> Iterator[tuple[str, Record]]:
    """The records of tensors below a node. seen: the mappings so far; a pickle may have circles."""
    if isinstance(node, Record) and node.name in _PARAMETERS:
        node = node.given[0]
    if isinstance(node, Record) and node.name in _TENSORS:
        yield name, node
        return
    for part in node.parts if isinstance(node, Record) else [node]:
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            for key, value in part.items():
                if isinstance(key, str):
                    inner = name if key in _PARTS else f"{name}.{key}".removeprefix(".")
                    yield from _named(value, inner, seen)
