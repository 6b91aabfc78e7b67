from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgpack
import pytest

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    DEFAULT_LIMITS,
    SCHEMA_HASH,
    DType,
    LabelKind,
    Manifest,
    ReturnType,
    SequenceSpec,
    StreamDirection,
    StreamSpec,
    TensorSpec,
)
from popc_runtime.format.schema import definition_hash
from popc_runtime.format.serialization import pack, unpack
from tests.format.samples import change, sample_manifest


def _read(fields: object) -> Manifest:
    return Manifest.from_fields(unpack(msgpack.packb(fields), "the manifest", DEFAULT_LIMITS))


def test_round_trip() -> None:
    manifest = sample_manifest()
    assert _read(manifest.to_dict()) == manifest
    assert pickle.loads(pickle.dumps(manifest)) == manifest


def test_unknown_fields_are_ignored() -> None:
    assert _read({**sample_manifest().to_dict(), "from_the_future": 1}) == sample_manifest()


def test_tensors_print_as_people_write_them() -> None:
    assert str(TensorSpec("x", DType.FLOAT32, (1, 3, 224, 224))) == "x: float32[1,3,224,224]"
    assert str(TensorSpec("s", DType.BOOL, ())) == "s: bool[]"


def _to(value: object) -> Callable[[object], object]:
    return lambda _: value


def _without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda fields: {name: value for name, value in fields.items() if name != key}


@pytest.mark.parametrize(
    ("path", "update", "message"),
    [
        ([], _to([]), "the manifest is not a map"),
        ([], _without("inputs"), "field 'inputs' of the manifest is missing"),
        (["inputs"], _to({}), "is missing or not of type list"),
        (["inputs", 0], _to("x"), r"inputs\[0\] of the manifest is not a map"),
        (["inputs", 0], _without("name"), r"field 'name' of inputs\[0\]"),
        (["inputs", 0, "dtype"], _to("float128"), "field 'dtype' .* is 'float128'"),
        (["inputs", 0, "shape"], _to([1] * 33), "33 dimensions"),
        (["inputs", 0, "shape", 0], _to(-1), "'shape' .* holds -1"),
        (["inputs", 0, "shape", 0], lambda _: True, "'shape' .* holds True"),
        (["inputs", 0, "shape", 0], _to(1.0), "'shape' .* holds 1.0"),
        (["inputs", 0, "shape", 0], _to(1 << 60), "'shape' .* holds 1152921504606846976"),
        (["inputs"], lambda inputs: inputs * 2, "two inputs have the name 'x'"),
        (["outputs", 1, "name"], _to("seq.0"), "two outputs have the name 'seq.0'"),
        (
            ["inputs", 0, "dtype"],
            _to("int32"),
            "input 'x' does not match the samples of its stream",
        ),
        (["outputs", 1, "name"], _to("seq"), "sequence 'seq' lists a missing output 'seq.1'"),
        (
            ["outputs", 0, "shape"],
            _to([2]),
            "output 'seq.0' does not match the samples of its stream",
        ),
        (["streams", 0, "name"], _to("y"), "input 'x' has no stream"),
        (
            ["streams", 0, "shape"],
            _to([2, 2, 3]),
            "input 'x' does not match the samples of its stream",
        ),
        (
            ["streams", 0, "samples_per_step"],
            _to(3),
            "input 'x' does not match the samples of its stream",
        ),
        (["streams", 0, "direction"], _to("sideways"), "'direction'"),
        (["streams", 0, "samples_per_step"], _to(-1), "is -1, not in 0 to"),
        (["streams", 0, "samples_per_step"], _to(None), "not of type int"),
        (["streams", 0, "return_type"], _to("all"), "is an input with return type all"),
        (["streams", 1, "return_type"], _to(None), "is an output with return type None"),
        (["streams", 1, "return_type"], _to("some"), "'return_type'"),
        (["streams", 1, "return_type"], _to(3), "'return_type'"),
        (["programs"], _to(["main", 3]), "holds something that is not text"),
        (["programs"], _to(["main", "main"]), "two programs have the name 'main'"),
        (["options", 0, "origin"], _to("/home/me"), "'origin'"),
        (["options", 0, "value"], _to(None), "type that options do not have"),
        (["options", 0, "value"], _to({"a": 1}), "type that options do not have"),
        (["options", 0, "value"], _to([[[[[1]]]]]), "type that options do not have"),
        (
            ["sequences", 0, "tensors"],
            _to(["seq.0", "z"]),
            "sequence 'seq' lists a missing output 'z'",
        ),
        (["sequences", 0, "tensors"], _to(["seq.0", "seq.0"]), "two sequence elements"),
        (["memory", "peak_bytes"], _to(-1), "field 'memory' .* holds -1"),
        (["memory", "peak_bytes"], _to(0.5), "field 'memory' .* holds 0.5"),
        (["provenance", "opset"], _to(17), "'provenance' .* not text"),
        (["model_sha256"], _to("ABC"), "not a SHA-256"),
        (["compiler_version"], _to(1), "not of type str"),
        (["format_version"], _to([1]), "two numbers"),
        (["format_version"], _to([1, 1 << 16]), "'format_version'"),
    ],
)
def test_every_field_is_checked(
    path: list[object], update: Callable[[Any], object], message: str
) -> None:
    fields = change(sample_manifest().to_dict(), path, update)
    with pytest.raises(CorruptArchiveError, match=message):
        _read(fields)


_ELEMENTS: Final = TensorSpec("c", DType.INT64, (2,), ("a", "b", ""), LabelKind.ELEMENTS)
_COLUMNS: Final = TensorSpec("c", DType.FLOAT32, (4, 2), (7, -1), LabelKind.COLUMNS)


def _labelled(spec: TensorSpec) -> Manifest:
    stream = StreamSpec("c", StreamDirection.INPUT, spec.dtype, spec.shape, 1)
    return Manifest((spec,), (), (stream,), ("main",), (), "1", "0" * 64)


@pytest.mark.parametrize("spec", [_ELEMENTS, replace(_ELEMENTS, labels=()), _COLUMNS], ids=str)
def test_labels_are_read_as_they_were_written(spec: TensorSpec) -> None:
    assert _read(_labelled(spec).to_dict()) == _labelled(spec)


@pytest.mark.parametrize(
    ("spec", "key", "value", "message"),
    [
        (_COLUMNS, "labels", [7], "input 'c' has 1 labels for 2 columns"),
        (_COLUMNS, "labels", [7, "a"], "'labels' .* holds 'a'"),
        (_COLUMNS, "labels", [7, 1 << 63], "'labels' .* holds 9223372036854775808"),
        (_ELEMENTS, "labels", [1, 2, 3], "input 'c' has elements that stand for numbers"),
        (_COLUMNS, "label_kind", "elements", "input 'c' has labels for elements of type float32"),
        (_ELEMENTS, "label_kind", "columns", "input 'c' has 3 labels for 2 columns"),
        (_ELEMENTS, "label_kind", "rows", "'label_kind' .* is 'rows'"),
        (_ELEMENTS, "labels", ["a", 3], "'labels' .* holds something that is not text"),
        (_ELEMENTS, "labels", None, "'labels'"),
    ],
)
def test_labels_that_fit_nothing_are_refused(
    spec: TensorSpec, key: str, value: object, message: str
) -> None:
    fields = change(_labelled(spec).to_dict(), ["inputs", 0, key], lambda _: value)
    with pytest.raises(CorruptArchiveError, match=message):
        _read(fields)


def test_contradictions_are_found_before_writing() -> None:
    assert sample_manifest().problem() == ""
    sequence = SequenceSpec("q", ("nowhere",))
    assert "nowhere" in sample_manifest(sequences=(sequence,)).problem()
    stream = StreamSpec("x", StreamDirection.OUTPUT, DType.BOOL, (), 1, ReturnType.ALL)
    assert "two output streams" in sample_manifest(streams=(stream, stream)).problem()


def test_packing_sorts_maps_at_every_level() -> None:
    first: dict[str, Any] = {"b": [{"y": 1, "x": 2}], "a": 0}
    second: dict[str, Any] = {"a": 0, "b": [{"x": 2, "y": 1}]}
    assert pack(first) == pack(second)


def test_the_schema_hash_follows_the_definition() -> None:
    assert len(SCHEMA_HASH) == 64
    assert definition_hash((DType,), ()) != definition_hash((ReturnType,), ())
    assert definition_hash((TensorSpec,), ()) != definition_hash((TensorSpec,), ("column",))
    assert sample_manifest().schema_hash == SCHEMA_HASH
