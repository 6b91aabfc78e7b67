"""Put together what an archive holds from what the stages made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from popc.archive.archive import Archive
from popc.archive.panels import store_in_panels
from popc.archive.provenance import provenance_of
from popc.archive.streams import describe_streams
from popc.compiler import Compiled, Planned
from popc.frontend import ImportedModel, strip_weights
from popc.memory import ConstantBlock, MemoryPlan
from popc.options import FloatingPointException, Options, WeightStorage
from popc_runtime.format import (
    Blob,
    BlobKind,
    Codec,
    FloatCheck,
    Manifest,
    Piece,
    ProgramImage,
    SequenceSpec,
    VariableSpec,
    encode_program,
    oldest_reader,
)

__all__ = ["build_archive"]


def build_archive(compiled: Compiled, report: bytes = b"", cycles: bytes = b"") -> Archive:
    """The archive of a compiled model.

    ``report`` holds the costs of a run, ``cycles`` those of every op, for counting at run time.
    """
    planned = compiled.planned
    options = planned.options
    image, constants = _stored(compiled.image, planned.plan.constants, options)
    manifest = _manifest(planned, tuple(image.programs))
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
        model = strip_weights(planned.program.loaded, names)
        blobs = (*blobs, Blob.of_bytes("model", BlobKind.MODEL, model, required=False))
    for name, content in (("report", report), ("cycles", cycles)):
        if content:
            blobs = (*blobs, Blob.of_bytes(name, BlobKind.REPORT, content, required=False))
    return Archive(manifest, blobs, options.compression)


def _manifest(planned: Planned, programs: tuple[str, ...]) -> Manifest:
    """Everything that can be read without decompressing a blob."""
    program, model, options = planned.program, planned.model, planned.options
    replicas = options.replicated_graph_count
    streams, inputs, outputs = describe_streams(
        model.graph, model.inputs, model.outputs, replicas, options.buffering_depth
    )
    return Manifest(
        inputs=inputs,
        outputs=outputs,
        streams=streams,
        programs=programs,
        options=options.to_manifest(),
        compiler_version=_version(),
        model_sha256=program.loaded.sha256,
        variables=_variables(model, planned.plan),
        training=program.training,
        replicas=replicas,
        identical_seeds=options.identical_replica_seeds,
        floating_point_checks=_checks(options),
        sequences=tuple(SequenceSpec(name, parts) for name, parts in model.sequences.items()),
        memory=_memory(planned.plan),
        provenance=provenance_of(program.request, program.loaded),
    )


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
    """The exceptions in the options that the runtime looks for."""
    if not options.enable_floating_point_checks:
        return ()
    wanted = frozenset(options.floating_point_exceptions)
    return tuple(check for check in FloatCheck if FloatingPointException(check) in wanted)


def _variables(model: ImportedModel, plan: MemoryPlan) -> tuple[VariableSpec, ...]:
    """All variables by name."""
    specs: list[VariableSpec] = []
    for tensor in sorted(model.graph.variables, key=lambda variable: variable.name):
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
