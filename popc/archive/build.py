"""Put together what an archive holds from what the stages made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from popc.archive.archive import Archive
from popc.frontend import ImportedModel, LoadedModel
from popc.memory import MemoryPlan
from popc.options import Options
from popc_runtime.format import (
    Blob,
    BlobKind,
    Codec,
    Compression,
    Manifest,
    Piece,
    ProgramImage,
    SequenceSpec,
    StreamDirection,
    StreamSpec,
    TensorSpec,
    encode_program,
)

__all__ = ["build_archive"]


def build_archive(
    loaded: LoadedModel,
    model: ImportedModel,
    plan: MemoryPlan,
    image: ProgramImage,
    options: Options,
) -> Archive:
    """The archive of a compiled model."""
    streams = (*_input_streams(model, options), *_output_streams(model, options))
    manifest = Manifest(
        inputs=tuple(_tensor(s) for s in streams if s.direction is StreamDirection.INPUT),
        outputs=tuple(_tensor(s) for s in streams if s.direction is StreamDirection.OUTPUT),
        streams=streams,
        programs=tuple(image.programs),
        options=options.to_manifest(),
        compiler_version=_version(),
        model_sha256=loaded.sha256,
        sequences=tuple(SequenceSpec(name, parts) for name, parts in model.sequences.items()),
        memory=_memory(plan),
        provenance=loaded.provenance,
    )
    pieces = tuple(Piece(block.offset, block.data) for block in plan.constants)
    codec = Codec.RAW if options.weights == "mmap" else Codec.ZSTD_SHUFFLE
    blobs = (
        Blob.of_bytes("program", BlobKind.PROGRAM, encode_program(image)),
        Blob("weights", BlobKind.WEIGHTS, codec, plan.constant_bytes, pieces),
    )
    return Archive(manifest, blobs, Compression(options.compression))


def _version() -> str:
    try:
        return version("popc")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def _memory(plan: MemoryPlan) -> Mapping[str, int]:
    return {
        "arena_bytes": plan.arena_bytes,
        "constant_bytes": plan.constant_bytes,
        "naive_bytes": plan.naive_bytes,
        "peak_bytes": plan.peak_bytes,
        "state_bytes": plan.state_bytes,
    }


def _input_streams(model: ImportedModel, options: Options) -> list[StreamSpec]:
    return [
        StreamSpec(
            name,
            StreamDirection.INPUT,
            type_.dtype,
            type_.shape,
            samples_per_step=options.batches_per_step,
        )
        for name, type_ in model.inputs
    ]


def _output_streams(model: ImportedModel, options: Options) -> list[StreamSpec]:
    streams: list[StreamSpec] = []
    for name, type_ in model.outputs:
        anchor = options.anchor(name)
        samples = anchor.samples(options.batches_per_step)
        streams.append(
            StreamSpec(name, StreamDirection.OUTPUT, type_.dtype, type_.shape, samples, anchor.type)
        )
    return streams


def _tensor(stream: StreamSpec) -> TensorSpec:
    """What the host sees of a stream: a leading dimension if a step moves several samples."""
    steps = (stream.samples_per_step,) if stream.samples_per_step > 1 else ()
    return TensorSpec(stream.name, stream.dtype, (*steps, *stream.shape))
