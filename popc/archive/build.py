"""Put together what an archive holds from what the stages made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from popc.archive.archive import Archive
from popc.archive.panels import store_in_panels
from popc.archive.streams import describe_streams
from popc.frontend import ImportedModel, LoadedModel, strip_weights
from popc.memory import ConstantBlock, MemoryPlan
from popc.options import Options, WeightStorage
from popc_runtime.format import (
    Blob,
    BlobKind,
    Codec,
    FloatCheck,
    Manifest,
    Piece,
    ProgramImage,
    SequenceSpec,
    TrainingSpec,
    VariableSpec,
    encode_program,
    oldest_reader,
)

__all__ = ["build_archive"]


def build_archive(
    loaded: LoadedModel,
    model: ImportedModel,
    plan: MemoryPlan,
    image: ProgramImage,
    options: Options,
    training: TrainingSpec | None = None,
    report: bytes = b"",
    cycles: bytes = b"",
) -> Archive:
    """The archive of a compiled model.

    ``report`` says what a run costs, ``cycles`` what every op does, for counting at run time.
    """
    replicas = options.replicated_graph_count
    image, constants = _stored(image, plan.constants, options)
    streams, inputs, outputs = describe_streams(
        model.graph, model.inputs, model.outputs, replicas, options.buffering_depth
    )
    manifest = Manifest(
        inputs=inputs,
        outputs=outputs,
        streams=streams,
        programs=tuple(image.programs),
        options=options.to_manifest(),
        compiler_version=_version(),
        model_sha256=loaded.sha256,
        variables=_variables(model, plan),
        training=training,
        replicas=replicas,
        identical_seeds=options.identical_replica_seeds,
        floating_point_checks=_checks(options),
        sequences=tuple(SequenceSpec(name, parts) for name, parts in model.sequences.items()),
        memory=_memory(plan),
        provenance=loaded.provenance,
    )
    codec = Codec.RAW if options.weights is WeightStorage.MMAP else Codec.ZSTD_SHUFFLE
    blobs: tuple[Blob, ...] = (
        Blob.of_bytes(
            "program",
            BlobKind.PROGRAM,
            encode_program(image),
            oldest_reader=oldest_reader(image),
        ),
        Blob("weights", BlobKind.WEIGHTS, codec, image.constant_bytes, constants),
    )
    names = {variable.name for variable in manifest.variables}
    if names:
        kept = Blob.of_bytes("model", BlobKind.MODEL, strip_weights(loaded, names), required=False)
        blobs = (*blobs, kept)
    for name, content in (("report", report), ("cycles", cycles)):
        if content:
            blobs = (*blobs, Blob.of_bytes(name, BlobKind.REPORT, content, required=False))
    return Archive(manifest, blobs, options.compression)


def _stored(
    image: ProgramImage, constants: tuple[ConstantBlock, ...], options: Options
) -> tuple[ProgramImage, tuple[Piece, ...]]:
    """Constants as the file holds them, and the program that finds them there."""
    if options.pack_weights and not options.enable_floating_point_checks:  # which numpy makes
        image, constants = store_in_panels(image, constants)
    return image, tuple(Piece(block.offset, block.data) for block in constants)


def _version() -> str:
    try:
        return version("popc")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def _checks(options: Options) -> tuple[FloatCheck, ...]:
    """Those of the exceptions in the options that the runtime looks for."""
    if not options.enable_floating_point_checks:
        return ()
    return tuple(one for one in FloatCheck if one.value in options.floating_point_exceptions)


def _variables(model: ImportedModel, plan: MemoryPlan) -> tuple[VariableSpec, ...]:
    """All variables by name."""
    specs: list[VariableSpec] = []
    for tensor in sorted(model.graph.variables, key=lambda one: one.name):
        assert tensor.role is not None, tensor
        offset = plan.placements[tensor].offset
        type_ = tensor.type
        specs.append(
            VariableSpec(
                tensor.name,
                type_.dtype,
                type_.shape,
                tensor.role,
                offset,
                tensor.rows,
                tensor.whole,
                tensor.off_chip,
            )
        )
    return tuple(specs)


def _memory(plan: MemoryPlan) -> Mapping[str, int]:
    return {
        "arena_bytes": plan.arena_bytes,
        "constant_bytes": plan.constant_bytes,
        "naive_bytes": plan.naive_bytes,
        "peak_bytes": plan.peak_bytes,
        "remote_bytes": plan.remote_bytes,
        "state_bytes": plan.state_bytes,
    }
