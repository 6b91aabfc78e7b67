"""Import a whole ONNX model: its inputs with static shapes, its initializers, its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Self

from popc.frontend import messages as onnx
from popc.frontend.annotations import useless_annotations
from popc.frontend.bindings import (
    Bindings,
    ResolvedInputs,
    TrainingBindings,
    resolve,
)
from popc.frontend.bound_values import BoundValue
from popc.frontend.budget import ImportBudget
from popc.frontend.context import ImportContext, never
from popc.frontend.declared import OpenDimensionsError, misdeclared_outputs
from popc.frontend.filter_blocks import with_filters_in_order
from popc.frontend.functions import FunctionTable
from popc.frontend.importer import GraphImporter
from popc.frontend.kept import define_states, write_states
from popc.frontend.known import KnownValues, freeze
from popc.frontend.load import LoadedModel
from popc.frontend.model_functions import ModelFunctions
from popc.frontend.names import listed
from popc.frontend.narrow_weights import with_narrow_weights_as_bytes
from popc.frontend.outputs import add_outputs, require_bounds_of_sizes, wanted_outputs
from popc.frontend.sizes import SizeTable
from popc.frontend.states import NO_STATES, States, advise_on_caches, find_states
from popc.frontend.tensors import dtype_from_onnx, is_supported
from popc.frontend.updates import written_names
from popc.frontend.values import (
    OptionalValue,
    SequenceValue,
    SizedValue,
    TextValue,
    Value,
)
from popc.frontend.walk import all_nodes, differentiated_names, needed_nodes
from popc.frontend.words import TensorLabels, known_words, labels_of
from popc.frontend.written import lost_statistics
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import ModelError, TooMuchWorkError, UnsupportedOpError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen, replace

if TYPE_CHECKING:
    from popc.frontend.formulas import FormulaNumbers

__all__ = ["Bindings", "ImportedModel", "import_model"]


@frozen
class ImportedModel:
    """The graph of a model, and how its tensors are seen from outside.

    Attributes:
        graph: The graph; passes edit it in place.
        inputs, outputs: Names and types, as they were when the model was imported.
        sequences: The names of the element tensors of each output that is a sequence.
        values: Tensors by their names in the model; those of `TrainingBindings.keep`.
        updates: Variables that the model itself gives new values, with these.
        notes: What the user should know, although the model can be compiled.
        labels: What inputs and outputs mean whose elements, or columns, have labels.
        limits: By integer input: less than this its numbers must be; see `index_limits`.
        sizes: Of outputs whose size data decides: for each axis the output that has it, or "".
        functions: Functions of the model, which training may call.
    """

    graph: Graph
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    sequences: Mapping[str, tuple[str, ...]]
    values: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    updates: tuple[tuple[Tensor, Tensor], ...] = ()
    notes: tuple[str, ...] = ()
    labels: Mapping[str, TensorLabels] = field(default_factory=dict[str, TensorLabels])
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    functions: ModelFunctions = field(default_factory=ModelFunctions)

    @classmethod
    def of(
        cls, graph: Graph, sequences: Mapping[str, tuple[str, ...]], notes: Sequence[str]
    ) -> Self:
        """A model whose inputs and outputs are those of its graph."""
        return cls(graph, (), (), sequences, notes=tuple(notes)).with_ends_of_graph()

    def with_ends_of_graph(self) -> Self:
        """The same with the inputs and outputs that the graph has now."""
        outputs = zip(self.graph.output_names, self.graph.outputs, strict=True)
        return replace(
            self,
            inputs=tuple((tensor.name, tensor.type) for tensor in self.graph.inputs),
            outputs=tuple((name, tensor.type) for name, tensor in outputs),
        )


def import_model(loaded: LoadedModel, bindings: Bindings | None = None) -> ImportedModel:
    """The graph of a model with every shape static.

    Nodes that no wanted output depends on are not looked at.

    Raises:
        UnsupportedOpError, DataDependentShapeError, ModelError: the model cannot be compiled.
        UsageError: ``bindings`` do not fit the model.
    """
    bindings = bindings or Bindings()
    loaded = with_filters_in_order(loaded, bindings.nchwc_block_size)
    loaded = with_narrow_weights_as_bytes(loaded)
    context = _context(loaded, bindings)
    graph = Graph(loaded.proto.graph.name or "main")
    attempt = partial(_attempt, loaded)
    try:
        return _import(loaded, bindings, context, graph)
    except OpenDimensionsError as error:
        from popc.frontend.remedies import advise_on_shapes

        hint = advise_on_shapes(attempt, loaded, bindings, error.inputs)
        error.hint = advise_on_caches(loaded, hint, error.inputs)
        raise
    except (UnsupportedOpError, TooMuchWorkError):
        raise
    except ModelError as error:
        from popc.frontend.remedies import advise_on_inputs

        advice = advise_on_inputs(attempt, loaded, bindings, graph, context.known)
        error.hint = advice or error.hint
        raise


def _context(loaded: LoadedModel, bindings: Bindings) -> ImportContext:
    budget = ImportBudget(bindings.limits)
    functions = FunctionTable(loaded.proto.functions)
    functions.require(bindings.outlined)
    known = KnownValues(budget)
    sizes = SizeTable(known, bindings.bounds)
    context = ImportContext(functions, budget, known, sizes, loaded.base_dir)
    context.outlined = bindings.outlined
    return context


def _attempt(loaded: LoadedModel, bindings: Bindings) -> None:
    """Import the model as if in earnest."""
    context = _context(loaded, bindings)
    _import(loaded, bindings, context, Graph("attempt"))


def _import(
    loaded: LoadedModel, bindings: Bindings, context: ImportContext, graph: Graph
) -> ImportedModel:
    """See `import_model`; ``graph`` and ``context`` show how far it came."""
    model = loaded.proto
    states, bindings = find_states(loaded, bindings)
    inputs = resolve(loaded, bindings)
    wanted = wanted_outputs(model.graph, bindings, states)
    kept = [*bindings.kept, *states.results]
    nodes, names = needed_nodes(model.graph.node, [*wanted, *kept], model.functions)
    nodes = bindings.annotations.applied(nodes)
    context.replicas = bindings.replicas
    is_variable, notes = _prepare_variables(context, bindings.training, loaded, nodes)
    importer = GraphImporter(context, graph, loaded.opsets)
    words = known_words(model) if inputs.texts else ()
    _define_inputs(importer, model.graph, inputs, words, states)
    importer.define_initializers(model.graph, names.difference(importer.scope.values))
    importer.import_nodes(nodes)
    write_states(importer, states)
    _freeze(importer, is_variable, states)
    if context.problems.unsupported:
        _name_all_unsupported(context, loaded)
    context.problems.raise_if_any()
    results = [(name, importer.lookup(name)) for name in wanted]
    sequences, sizes = add_outputs(importer.graph, results)
    require_bounds_of_sizes(context.sizes)
    notes += useless_annotations(nodes, bindings.annotations)
    notes += [*lost_statistics(importer, nodes, wanted), *_wide_sums(context)]
    notes += [*loaded.notes, *misdeclared_outputs(model.graph, importer.graph)]
    labels = labels_of(importer, inputs.texts, dict(results))
    imported = replace(
        ImportedModel.of(importer.graph, sequences, notes), labels=labels, sizes=sizes
    )
    if bindings.training is None:
        return replace(imported, updates=tuple(importer.updates.values.items()))
    return replace(
        imported,
        values=_kept_tensors(importer, bindings.kept),
        updates=tuple(importer.updates.values.items()),
        functions=ModelFunctions.of(loaded, partial(_context, loaded, bindings)),
    )


def _name_all_unsupported(context: ImportContext, loaded: LoadedModel) -> None:
    """Name everything at once: what follows an unknown node has not been looked at."""
    from popc.frontend.unsupported import find_unsupported

    for row in find_unsupported(loaded):
        if not row.concerns_type:
            context.problems.unsupported[row.problem] = list(row.nodes)


def _wide_sums(context: ImportContext) -> list[str]:
    """A note on products that are asked to add up in a type that is smaller than theirs."""
    if not context.narrow_sums:
        return []
    names = listed(list(dict.fromkeys(context.narrow_sums)))
    return [f"partial sums in half have no effect on products of float32: {names}"]


def _kept_tensors(importer: GraphImporter, names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors that training needs by name.

    Raises:
        ModelError: data decides the size of one.
    """
    values = {name: importer.lookup(name) for name in names}
    for name, value in values.items():
        if isinstance(value, SizedValue):
            raise ModelError(f"data decides the size of {name!r}, which training needs to know")
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


# -- training --------------------------------------------------------------------------------------


def _prepare_variables(
    context: ImportContext,
    training: TrainingBindings | None,
    loaded: LoadedModel,
    nodes: Sequence[onnx.NodeProto],
) -> tuple[Callable[[str, TensorType], bool], list[str]]:
    """Let ``context`` know of variables; which weights end as some, and notes about them."""
    is_variable: Callable[[str, TensorType], bool] = never
    notes: list[str] = []
    if training is not None:
        context.trains = training.trains
        requests = training.recompute
        context.recompute = requests and requests.checked(loaded.proto.graph, nodes)
        context.written = written_names(nodes, context.functions, loaded.opsets)
        context.known.written = context.written
        policy = _VariablePolicy.of(training, loaded, nodes, context.written)
        is_variable, notes = policy.is_variable, policy.notes()
    context.is_variable = _or_varying(is_variable, context.written, nodes)
    return is_variable, notes


@frozen
class _VariablePolicy:
    """The choice of weights that become variables, beside those that the model itself updates.

    Attributes:
        training: What the weights are variables for.
        others: Names of what is no weight: running statistics that are not updated, if the model
            is trained, and tensors of Constant nodes.
        written: Names of what the model itself updates.
        numbers: What looks like a constant of a formula.
    """

    training: TrainingBindings
    others: Collection[str]
    written: Collection[str]
    numbers: FormulaNumbers

    @classmethod
    def of(
        cls,
        training: TrainingBindings,
        loaded: LoadedModel,
        nodes: Sequence[onnx.NodeProto],
        written: Collection[str],
    ) -> _VariablePolicy:
        """The policy for a model.

        Some exporters keep weights in Constant nodes; others keep there what is no weight.  So the
        tensors of Constant nodes count if weights are named, or if there are no others.
        """
        weights = loaded.proto.graph.initializer
        held = [node for node in all_nodes(nodes) if node.op_type == "Constant"]
        others: set[str] = set()
        if not training.named and any(map(_is_weight, weights)):
            others.update(node.output[0] for node in held)
        if training.trains:
            norms = (node for node in all_nodes(nodes) if node.op_type == "BatchNormalization")
            others.update(name for node in norms for name in node.input[3:5])
        from popc.frontend.formulas import FormulaNumbers, find_formula_numbers

        if training.named or not training.trains:
            return cls(training, others, written, FormulaNumbers())
        tensors = [(tensor.name, tensor) for tensor in weights]
        tensors += [(n.output[0], a.t) for n in held for a in n.attribute if a.HasField("t")]
        known = (pair for pair in tensors if pair[0] not in {*others, *written})
        numbers = find_formula_numbers(known, nodes, loaded.base_dir)
        return cls(training, others, written, numbers)

    def is_variable(self, name: str, type_: TensorType) -> bool:
        """True if a weight of this name and type is one."""
        if name in self.others or name in self.numbers.constant:
            return False
        return type_.dtype.is_float and self.training.is_trainable(name, type_)

    def notes(self) -> list[str]:
        """Notes for the user about weights that may be none."""
        plain = TensorType(DType.FLOAT32, (1,))
        return self.numbers.notes(lambda name: self.training.is_trainable(name, plain))


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return (
        is_supported(tensor.data_type)
        and bool(tensor.dims)
        and dtype_from_onnx(tensor.data_type).is_float
    )


def _or_varying(
    is_variable: Callable[[str, TensorType], bool],
    written: Collection[str],
    nodes: Iterable[onnx.NodeProto],
) -> Callable[[str, TensorType], bool]:
    """While nodes are imported, what they may write or differentiate must not be constants.

    What depends on constants alone is computed at once, and no op is left to differentiate.
    """
    names = differentiated_names(nodes)

    def is_variable_meanwhile(name: str, type_: TensorType) -> bool:
        differentiated = name in names and type_.dtype.is_float
        return name in written or differentiated or is_variable(name, type_)

    return is_variable_meanwhile if names or written else is_variable


def _freeze(
    importer: GraphImporter, is_variable: Callable[[str, TensorType], bool], states: States
) -> None:
    """Make constants of the weights that were variables only while nodes were imported."""
    names = {weight: proto.name for proto, weight in importer.context.variables.values()}
    for weight in importer.graph.variables:
        is_written = weight in importer.updates.values or weight.name in states.held
        if not is_written and not is_variable(names.get(weight, weight.name), weight.type):
            freeze(weight)


# -- inputs and weights ----------------------------------------------------------------------------


def _define_inputs(
    importer: GraphImporter,
    graph: onnx.GraphProto,
    inputs: ResolvedInputs,
    words: tuple[str, ...],
    states: States = NO_STATES,
) -> None:
    """Inputs come first, so that they keep their names in the graph; then those that are kept."""
    types = {info.name: info.type for info in graph.input}
    variables = {*(pair.past for pair in states.pairs), *states.held}
    for name, type_ in inputs.types.items():
        if name in variables:
            continue
        tensor = importer.graph.add_input(name, type_)
        value = TextValue(tensor, words, is_open=True) if name in inputs.texts else tensor
        importer.define(name, value)
    for name, bound in inputs.values.items():
        importer.define(name, _constant_value(importer, name, types[name], bound))
    define_states(importer, states, inputs.types)


def _constant_value(
    importer: GraphImporter, name: str, type_: onnx.TypeProto, value: BoundValue
) -> Value:
    if type_.HasField("optional_type"):
        inner = type_.optional_type.elem_type
        return OptionalValue(
            None if value is None else _constant_value(importer, name, inner, value)
        )
    if isinstance(value, list):
        element = type_.sequence_type.elem_type
        items = [
            _constant_value(importer, f"{name}.{index}", element, item)
            for index, item in enumerate(value)
        ]
        return SequenceValue(tuple(items), _sequence_dtype(element))
    assert value is not None, name
    return importer.constant(value, dtype_from_onnx(type_.tensor_type.elem_type), name)


def _sequence_dtype(element: onnx.TypeProto) -> DType | None:
    is_tensor = element.HasField("tensor_type")
    return dtype_from_onnx(element.tensor_type.elem_type) if is_tensor else None
