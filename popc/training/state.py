"""Write what a model itself gives new values: running statistics, counters, caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc.frontend import ImportedModel, LoadedModel, stored_values
from popc.ir import AttributeMap, Graph, Op, OpSettings, StepPart, Tensor
from popc.ops.build import build
from popc.options import Options, StreamMode
from popc_runtime.errors import ModelError
from popc_runtime.format import VariableRole
from popc_runtime.ground.frozen import replace

if TYPE_CHECKING:
    from popc.optimizers import Sharing

__all__ = ["add_state", "resume_state", "sharing_of", "show_updated", "write_updates"]


def add_state(model: ImportedModel, options: Options) -> ImportedModel:
    """Let a program that does not train write the variables to which ``model`` gives new values.

    Raises:
        ModelError: replicas share a variable, but would give it values that have no mean.
    """
    write_updates(model, options, StepPart.FORWARD)
    show_updated(model.graph)
    return replace(model, updates=())


def resume_state(model: ImportedModel, loaded: LoadedModel) -> ImportedModel:
    """Let the state of the optimizer begin as the initializers of its names that ``loaded`` has.

    That is what a trained model is exported with.  What replicas have parts of begins as ever; a
    note says so.

    Raises:
        ModelError: an initializer has another type.
    """
    states = {
        variable.name: variable
        for variable in model.graph.variables
        if variable.role is VariableRole.OPTIMIZER_STATE
    }
    notes: list[str] = []
    for name, (type_, data) in stored_values(loaded, states).items():
        state = states[name]
        if state.rows:
            notes.append(
                f"{name} begins as 0, whatever the model has, for replicas have parts of it: write "
                f"it when the program is loaded"
            )
        elif type_ != state.type:
            raise ModelError(
                f"the model has {type_} for {name}, but the state of the optimizer is {state.type}",
                subject=name,
                hint="train with the optimizer that the model was trained with, or leave it out",
            )
        else:
            state.initial = data
    return replace(model, notes=(*model.notes, *notes))


def write_updates(model: ImportedModel, options: Options, part: StepPart) -> None:
    """Give the variables that the model itself updates their new values, in ``part`` of a step.

    Where the values of replicas differ, those that share a variable agree on the mean.

    Raises:
        ModelError: there is no mean, because they are no floating-point numbers.
    """
    if not model.updates:
        return
    graph, replicas = model.graph, options.replicated_graph_count
    equal = [
        input_
        for input_ in graph.inputs
        if options.stream_mode(input_.name) is StreamMode.BROADCAST
    ]
    from popc.ops.divergence import find_divergence

    differing = find_divergence(graph, replicas, equal).tensors if replicas > 1 else set()
    for variable, own in model.updates:
        settings = OpSettings(origin=f"UpdatedVar___{variable.name}", part=part)
        sharing = sharing_of(options, variable.name)
        value = own
        if own in differing and sharing.size > 1:
            _require_mean(variable, own)
            mean: AttributeMap = {"op": "mean", "size": sharing.size, "stride": sharing.stride}
            value = build(graph, "ReplicatedAllReduce", [own], mean, settings=settings).output
        build(graph, "CopyVarUpdate", [variable, value], settings=settings)


def _require_mean(variable: Tensor, value: Tensor) -> None:
    if not value.type.dtype.is_float:
        raise ModelError(
            f"the model writes {value.type} to {variable.name!r}, which replicas share, but their "
            "values may differ and have no mean",
            subject=variable.name,
            hint=f"give each its own: the option variable_settings.{variable.name} = none",
        )


def sharing_of(options: Options, variable: str) -> Sharing:
    """The replicas that share a variable."""
    from popc.optimizers import Sharing

    groups, replicas = options.replica_groups(variable), options.replicated_graph_count
    return Sharing(groups.members(replicas), groups.stride(replicas))


def show_updated(graph: Graph) -> None:
    """Outputs by the names of variables give the values that these get, others what they had."""
    writers = [op for op in graph.ops if op.op_type == "CopyVarUpdate"]
    updated = {op.operand(0): _new_value(graph, op) for op in writers}
    names = zip(graph.output_names, graph.outputs, strict=True)
    graph.outputs = [
        updated[tensor] if tensor in updated and name == tensor.name else tensor
        for name, tensor in names
    ]


def _new_value(graph: Graph, op: Op) -> Tensor:
    """The new value that a CopyVarUpdate makes; of a variable written in parts, as a whole."""
    if "start" in op.attributes:
        return graph.tensors[f"UpdatedVar___{op.operand(0).name}"]
    return op.operand(1)
