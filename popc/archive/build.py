"""Put together what an archive holds from what the stages made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc.archive.archive import Archive
from popc.archive.limits import require_memory, require_readable
from popc.archive.panels import store_in_panels
from popc.archive.provenance import provenance_of
from popc.archive.streams import describe_streams
from popc.compiler import Compiled, Planned
from popc.frontend import ImportedModel, TensorLabels, strip_weights
from popc.ir import Graph, Tensor
from popc.ir.attributes import text
from popc.memory import ConstantBlock, MemoryPlan
from popc.ops.families import FAMILIES
from popc.options import FloatingPointException, Options, WeightStorage
from popc.progress import UNWATCHED, OnBytes, Stage, Watch
from popc_runtime.format import (
    EVALUATION_PROGRAM,
    MAIN_PROGRAM,
    Blob,
    BlobKind,
    Codec,
    FitSpec,
    FloatCheck,
    HostCallSpec,
    Manifest,
    Piece,
    ProgramImage,
    ProgramSpec,
    SequenceSpec,
    TensorSpec,
    VariableSpec,
    blob_of_program,
    encode_program,
    oldest_reader,
)
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.lazy import installed_version

__all__ = ["Content", "build_archive"]


@frozen
class Content:
    """A program for an archive.

    Attributes:
        compiled: The program.
        report: The costs of a run.
        cycles: Those of every op, for counting at run time.
    """

    compiled: Compiled
    report: bytes = b""
    cycles: bytes = b""


def build_archive(
    contents: Sequence[Content], fits: Sequence[FitSpec] = (), watch: Watch = UNWATCHED
) -> Archive:
    """The archive of a model that was compiled once or, for several shapes, several times.

    The first program is ``main``, and options are its.  ``fits`` say what may be done with inputs
    of other shapes.  ``watch`` is told how much of the weights is compared and packed.

    Raises:
        UsageError: see `merge_images`.
    """
    planned = contents[0].compiled.planned
    options = planned.options
    manifest, image, blocks = _merged(contents, fits, watch.counter(Stage.PACK))
    image, constants = _stored(image, blocks, options)
    require_memory(image)
    program = encode_program(image)
    require_readable(manifest, program)
    codec = Codec.RAW if options.weights is WeightStorage.MMAP else Codec.ZSTD_SHUFFLE
    blobs: tuple[Blob, ...] = (
        Blob.of_bytes(
            "program",
            BlobKind.PROGRAM,
            program,
            oldest_reader=_oldest_reader(manifest, image),
        ),
        Blob("weights", BlobKind.WEIGHTS, codec, image.constant_bytes, constants),
    )
    names = {variable.name for variable in manifest.variables}
    if names:
        model = strip_weights(planned.program.loaded, names)
        blobs = (*blobs, Blob.of_bytes("model", BlobKind.MODEL, model, required=False))
    for name, content in zip((MAIN_PROGRAM, *_names(contents)), contents, strict=True):
        for kind, data in (("report", content.report), ("cycles", content.cycles)):
            if data:
                own = blob_of_program(kind, name)
                blobs = (*blobs, Blob.of_bytes(own, BlobKind.REPORT, data, required=False))
    return Archive(manifest, blobs, options.compression)


def _oldest_reader(manifest: Manifest, image: ProgramImage) -> int:
    """The first minor version of the format whose readers understand all of it."""
    programs: list[Manifest | ProgramSpec] = [manifest, *manifest.variants]
    if oldest_reader(image) > 7:
        return oldest_reader(image)
    if any(_have_a_name_in_common(program) for program in programs):
        return 7
    if any(spec.sizes for program in programs for spec in program.outputs):
        return 6
    if manifest.operators:
        return 4
    return 3 if manifest.variants or manifest.fits else oldest_reader(image)


def _have_a_name_in_common(program: Manifest | ProgramSpec) -> bool:
    """True if an output has the name of an input."""
    inputs = {spec.name for spec in program.inputs}
    return any(spec.name in inputs for spec in program.outputs)


def _names(contents: Sequence[Content]) -> tuple[str, ...]:
    """The names of the programs beside the first."""
    found: list[str] = []
    evaluations = 0
    for number, content in enumerate(contents[1:], 2):
        if not content.compiled.planned.program.request.variables:
            found.append(f"{MAIN_PROGRAM}.{number}")
            continue
        evaluations += 1
        again = f".{evaluations}" if evaluations > 1 else ""
        found.append(f"{EVALUATION_PROGRAM}{again}")
    return tuple(found)


def _merged(
    contents: Sequence[Content], fits: Sequence[FitSpec], on_bytes: OnBytes
) -> tuple[Manifest, ProgramImage, tuple[ConstantBlock, ...]]:
    """The programs together; a single one as it is."""
    compiled = [content.compiled for content in contents]
    manifests = [_manifest(each.planned, tuple(each.image.programs)) for each in compiled]
    first = compiled[0]
    if len(compiled) == 1:
        alone = replace(manifests[0], fits=tuple(fits))
        return alone, first.image, first.planned.plan.constants
    names = _names(contents)
    from popc.archive.merge import ProgramPart, merge_images

    parts = [
        ProgramPart(name, each.image, each.planned.plan.constants, manifest.variables)
        for name, each, manifest in zip((MAIN_PROGRAM, *names), compiled, manifests, strict=True)
    ]
    image, constants, variables = merge_images(parts, on_bytes)
    variants = tuple(map(_program, names, manifests[1:]))
    manifest = replace(
        manifests[0],
        programs=tuple(image.programs),
        variants=variants,
        fits=tuple(fits),
        operators=tuple(sorted({name for each in manifests for name in each.operators})),
        host_calls=tuple(dict.fromkeys(call for each in manifests for call in each.host_calls)),
        variables=variables,
        memory=_memory_of_all(image, [each.planned.plan for each in compiled]),
    )
    return manifest, image, constants


def _program(name: str, manifest: Manifest) -> ProgramSpec:
    return ProgramSpec(
        name,
        manifest.inputs,
        manifest.outputs,
        manifest.streams,
        manifest.sequences,
        manifest.memory,
        manifest.training is not None,
    )


def _memory_of_all(image: ProgramImage, plans: Sequence[MemoryPlan]) -> Mapping[str, int]:
    return {
        "arena_bytes": image.arena_bytes,
        "constant_bytes": image.constant_bytes,
        "naive_bytes": max(plan.naive_bytes for plan in plans),
        "peak_bytes": max(plan.peak_bytes for plan in plans),
        "remote_bytes": image.remote_bytes,
        "state_bytes": image.state_bytes,
    }


def _manifest(planned: Planned, programs: tuple[str, ...]) -> Manifest:
    """Everything that can be read without decompressing a blob."""
    program, model, options = planned.program, planned.model, planned.options
    replicas = options.replicated_graph_count
    streams, inputs, outputs = describe_streams(
        model.graph, model.inputs, model.outputs, replicas, options.buffering_depth
    )
    return Manifest(
        inputs=_labelled(inputs, model.labels),
        outputs=_sized(_labelled(outputs, model.labels), model.sizes),
        streams=streams,
        programs=programs,
        options=options.to_manifest(),
        compiler_version=installed_version("popc"),
        model_sha256=program.loaded.sha256,
        variables=_variables(model, planned.plan),
        training=program.training,
        replicas=replicas,
        identical_seeds=options.identical_replica_seeds,
        seed=options.seed,
        floating_point_checks=_checks(options),
        sequences=tuple(SequenceSpec(name, parts) for name, parts in model.sequences.items()),
        index_limits=model.limits,
        memory=_memory(planned.plan),
        provenance=provenance_of(program.request, program.loaded),
        operators=_operators(model.graph),
        host_calls=_host_calls(model.graph),
    )


def _labelled(
    specs: Sequence[TensorSpec], labels: Mapping[str, TensorLabels]
) -> tuple[TensorSpec, ...]:
    """Tensors with what their elements or columns stand for."""
    return tuple(
        replace(spec, labels=found.labels, label_kind=found.kind)
        if (found := labels.get(spec.name)) is not None
        else spec
        for spec in specs
    )


def _sized(
    specs: Sequence[TensorSpec], sizes: Mapping[str, tuple[str, ...]]
) -> tuple[TensorSpec, ...]:
    """Outputs with the names of their sizes, which are streams but no outputs of the model."""
    hidden = {name for names in sizes.values() for name in names}
    return tuple(
        replace(spec, sizes=sizes.get(spec.name, ())) for spec in specs if spec.name not in hidden
    )


def _calls_users(graph: Graph) -> bool:
    """True if the program may call functions of users."""
    return any(nested.may_have(FAMILIES["custom"]) for nested in graph.walk())


def _operators(graph: Graph) -> tuple[str, ...]:
    """The operators of users that are in the program."""
    if not _calls_users(graph):
        return ()
    from popc_runtime.kernels.custom import OPERATOR

    ops = (op for nested in graph.walk() for op in nested.ops if OPERATOR in op.attributes)
    return tuple(sorted({text(op.attributes, OPERATOR) for op in ops}))


def _host_calls(graph: Graph) -> tuple[HostCallSpec, ...]:
    """The functions that the program calls on the host, in the order of the graph."""
    if not _calls_users(graph):
        return ()
    from popc_runtime.kernels.custom import CALL

    def types(tensors: Sequence[Tensor | None]) -> tuple[str, ...]:
        return tuple("" if tensor is None else str(tensor.type) for tensor in tensors)

    ops = (op for nested in graph.walk() for op in nested.ops if op.op_type == "HostCall")
    found = (
        HostCallSpec(text(op.attributes, CALL), types(op.inputs), types(op.outputs)) for op in ops
    )
    return tuple(dict.fromkeys(found))


def _stored(
    image: ProgramImage,
    constants: tuple[ConstantBlock, ...],
    options: Options,
) -> tuple[ProgramImage, tuple[Piece, ...]]:
    """Constants as the file holds them, and the program that finds them there."""
    if options.pack_weights and not options.enable_floating_point_checks:  # which numpy makes
        return store_in_panels(image, constants)
    return image, tuple(Piece(block.offset, block.data) for block in constants)


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
