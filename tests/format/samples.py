"""Programs, manifests and archives to test the format with: fixed ones and random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack
import numpy as np
import zstandard
from hypothesis import strategies as st

from popc_runtime.format import (
    Attribute,
    Blob,
    BlobKind,
    Block,
    CallBlock,
    Codec,
    DType,
    IfBlock,
    Instruction,
    Item,
    Manifest,
    OptionSetting,
    Origin,
    Packing,
    Piece,
    ProgramImage,
    Region,
    RepeatBlock,
    ReturnType,
    SequenceSpec,
    Slot,
    StreamDirection,
    StreamSpec,
    TensorSpec,
    encode_program,
    write_archive,
)
from popc_runtime.format.header import Header

REGION_BYTES = 4096
# Slots that blocks are steered by come first, so that random programs can refer to them.
BOOL_SCALAR, INT_SCALAR = 0, 1


def sample_image() -> ProgramImage:
    """A small program with every kind of item, operand and attribute."""
    slots = (
        Slot(Region.ARENA, 0, DType.BOOL, ()),
        Slot(Region.STATE, 8, DType.INT64, (1,)),
        Slot(Region.CONSTANT, 64, DType.FLOAT32, (4, 4)),
        Slot(Region.ARENA, 124, DType.FLOAT32, (4, 4), (-16, 4)),
        Slot(Region.ARENA, 256, DType.BFLOAT16, (3, 0)),
    )
    attributes: dict[str, Attribute] = {
        "axis": -1,
        "alpha": 0.1,
        "mode": "constant",
        "pads": (0, 1, -2),
        "scales": (0.5, float("inf"), -0.0),
        "names": ("a", "", "größer"),
        "none": (),
        "limit": (1 << 64) - 1,
        "limits": (-(1 << 63), 1 << 63),
    }
    relu = Instruction("Relu", (2, -1), (3,), attributes, "/layer/Relu")
    copy = Instruction("Copy", (3,), (4, -1))
    loop = RepeatBlock((relu, CallBlock("leaf")), 3, INT_SCALAR, BOOL_SCALAR, INT_SCALAR, "loop")
    branch = IfBlock(BOOL_SCALAR, (loop, copy), (), "branch")
    return ProgramImage(
        slots, {"main": (relu, branch, copy), "leaf": (copy,)}, REGION_BYTES, 1024, 512
    )


def sample_manifest(**changes: Any) -> Manifest:
    """A manifest with every kind of field."""
    fields: dict[str, Any] = {
        "inputs": (TensorSpec("x", DType.FLOAT32, (2, 3)),),
        "outputs": (
            TensorSpec("seq.0", DType.INT64, ()),
            TensorSpec("seq.1", DType.BFLOAT16, (0, 7)),
        ),
        "streams": (
            StreamSpec("x", StreamDirection.INPUT, DType.FLOAT32, (3,), 2),
            StreamSpec("seq.0", StreamDirection.OUTPUT, DType.INT64, (), 0, ReturnType.SUM),
            StreamSpec("seq.1", StreamDirection.OUTPUT, DType.BFLOAT16, (0, 7), 1, ReturnType.ALL),
        ),
        "programs": ("main", "leaf"),
        "options": (
            OptionSetting("anchors", (("y", "every_n", 2),), Origin.FILE),
            OptionSetting("batches_per_step", 2, Origin.CLI),
            OptionSetting("ratio", 0.5, Origin.ENV),
            OptionSetting("verify_ir", value=True, origin=Origin.DEFAULT),
        ),
        "compiler_version": "0.1.0",
        "model_sha256": hashlib.sha256(b"model").hexdigest(),
        "sequences": (SequenceSpec("seq", ("seq.0", "seq.1")),),
        "memory": {"arena_bytes": REGION_BYTES, "peak_bytes": 12},
        "provenance": {"producer": "pytorch 2.9", "opset": "ai.onnx 20"},
    }
    return Manifest(**{**fields, **changes})


def sample_weights(size: int = 3 << 20) -> tuple[Piece, ...]:
    """Arrays of several widths, the larger ones over more than one chunk."""
    generator = np.random.default_rng(7)
    floats = generator.normal(size=size // 5).astype(np.float32)
    integers = generator.integers(-9, 9, size // 80)
    halves = generator.normal(size=(5, 7)).astype(np.float16)
    arrays = (integers, halves.T, floats, np.array(3.5), floats[:9:2])
    pieces: list[Piece] = []
    offset = 64
    for array in arrays:
        pieces.append(Piece(offset, array))
        offset += -(-array.nbytes // 64) * 64
    return tuple(pieces)


def weights_blob(codec: Codec, pieces: Sequence[Piece]) -> Blob:
    """The blob of ``pieces``, with a few zeros behind the last one."""
    last = pieces[-1]
    return Blob("weights", BlobKind.WEIGHTS, codec, last.offset + last.array.nbytes + 5, (*pieces,))


def flat_bytes(blob: Blob) -> bytes:
    """What the contents of ``blob`` are by its definition."""
    data = bytearray(blob.size)
    for piece in blob.pieces:
        assert isinstance(piece.array, np.ndarray), "samples are not in panels"
        raw = piece.array.tobytes()
        data[piece.offset : piece.offset + len(raw)] = raw
    return bytes(data)


def sample_blobs(codec: Codec = Codec.ZSTD_SHUFFLE, size: int = 40_000) -> tuple[Blob, ...]:
    """A program, weights and an optional blob."""
    return (
        Blob.of_bytes("program", BlobKind.PROGRAM, encode_program(sample_image())),
        weights_blob(codec, sample_weights(size)),
        Blob.of_bytes("report", BlobKind.REPORT, b"", required=False),
    )


def archive_bytes(blobs: Sequence[Blob], manifest: Manifest | None = None) -> bytes:
    """The archive as bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.popx")
        write_archive(path, manifest or sample_manifest(), blobs)
        return path.read_bytes()


def manifest_of(archive: bytes) -> dict[str, Any]:
    """The unpacked manifest of ``archive``."""
    header = Header.parse(archive)
    start = header.manifest_offset
    stored = archive[start : start + header.manifest_stored_bytes]
    manifest = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(stored))
    assert isinstance(manifest, dict)
    return manifest


def reseal(archive: bytes, manifest: object, **header_changes: Any) -> bytes:
    """``archive`` with another manifest and a header and hash that fit: a forgery."""
    raw = manifest if isinstance(manifest, bytes) else msgpack.packb(manifest)
    stored = zstandard.ZstdCompressor().compress(raw)
    start = Header.parse(archive).manifest_offset
    fields: dict[str, Any] = {
        "manifest_offset": start,
        "manifest_stored_bytes": len(stored),
        "manifest_raw_bytes": len(raw),
        "built_by": "popc 0.1.0",
        **header_changes,
    }
    header = Header(**fields).pack()
    digest = hashlib.sha256(header + stored).digest()
    return header + archive[len(header) : start] + stored + digest


def change(value: Any, path: Sequence[Any], update: Callable[[Any], object]) -> Any:
    """A copy of nested maps and lists with ``update`` applied at ``path``."""
    if not path:
        return update(value)
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[path[0]] = change(value[path[0]], path[1:], update)
    return copy


# -- random programs -------------------------------------------------------------------------------

_names = st.text(max_size=12)
_int64 = st.integers(-(1 << 63), (1 << 63) - 1)
_wide = st.integers(-(1 << 63), (1 << 64) - 1)
_floats = st.floats(allow_nan=False)


def _tuples(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(elements, max_size=4).map(tuple)


_attributes = st.dictionaries(
    _names,
    st.one_of(_wide, _floats, _names, _tuples(_wide), _tuples(_floats), _tuples(_names)),
    max_size=3,
)


@st.composite
def _slots(draw: st.DrawFn) -> Slot:
    if draw(st.integers(0, 5)) == 0:
        rank = draw(st.integers(2, 4))
        packing = draw(st.sampled_from([Packing.ROWS, *([Packing.COLUMNS] if rank == 2 else [])]))
        shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
        return Slot(Region.CONSTANT, 0, DType.FLOAT32, shape, packing=packing)
    dtype = draw(st.sampled_from(DType))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    region = draw(st.sampled_from([Region.ARENA, Region.CONSTANT, Region.STATE]))
    size = dtype.itemsize
    if draw(st.booleans()):
        room = (REGION_BYTES - prod(shape) * size) // size
        return Slot(region, size * draw(st.integers(0, room)), dtype, shape)
    strides = tuple(size * draw(st.integers(-9, 9)) for _ in shape)
    spans = [(count - 1) * step for count, step in zip(shape, strides, strict=True) if count]
    before = -sum(span for span in spans if span < 0)
    after = REGION_BYTES - size - sum(span for span in spans if span > 0)
    return Slot(
        region, draw(st.integers(before // size, after // size)) * size, dtype, shape, strides
    )


def _items(slot_count: int, writable: list[int]) -> st.SearchStrategy[Item]:
    operands = _tuples(st.integers(-1, slot_count - 1))
    targets = _tuples(st.sampled_from([-1, *writable]))
    opcodes = st.sampled_from(["Add", "Relu", "Größe"])
    leaf: st.SearchStrategy[Item] = st.one_of(
        st.builds(Instruction, opcodes, operands, targets, _attributes, _names),
        st.just(CallBlock("leaf")),
    )

    def nest(inner: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
        body: st.SearchStrategy[Block] = _tuples(inner)
        flag, count = st.sampled_from([-1, BOOL_SCALAR]), st.sampled_from([-1, INT_SCALAR])
        return st.one_of(
            st.builds(RepeatBlock, body, st.integers(-1, 1 << 40), count, flag, count, _names),
            st.builds(IfBlock, st.just(BOOL_SCALAR), body, body, _names),
        )

    return st.recursive(leaf, nest, max_leaves=12)


@st.composite
def images(draw: st.DrawFn) -> ProgramImage:
    """Valid images of a few slots and programs."""
    slots = (
        Slot(Region.ARENA, 0, DType.BOOL, ()),
        Slot(Region.STATE, 0, DType.INT64, (1, 1)),
        *draw(st.lists(_slots(), max_size=6)),
    )
    writable = [index for index, slot in enumerate(slots) if slot.region is not Region.CONSTANT]
    items = _items(len(slots), writable)
    programs: dict[str, Block] = {
        name: draw(_tuples(items))
        for name in draw(st.lists(_names.filter(lambda name: name != "leaf"), unique=True))
    }
    return ProgramImage(slots, {**programs, "leaf": ()}, REGION_BYTES, REGION_BYTES, REGION_BYTES)
