"""The checks that a session makes of what it is given, beside those of popc."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Protocol

import onnx

from popc.ir import TensorType
from popc.popart.dataflow import DataFlow
from popc.popart.device_info import DeviceInfo
from popc.popart.engine_options import check_engine_options
from popc.popart.enums import DeviceType
from popc.popart.errors import popart_exception
from popc.popart.model_names import EFFECTS, all_names, nodes_of, place_of
from popc.popart.op_errors import op_text
from popc.popart.op_refusals import refusals
from popc.popart.optimizers import Optimizer
from popc.popart.options import SessionOptions
from popc.popart.pipeline_checks import placement_problems
from popc.popart.prefixes import reserved_prefix_of
from popc.popart.session_options import highest_virtual_graph, replicas_of
from popc.training import training_anchors

__all__ = ["check_device", "check_loss", "check_setup", "no_anchor"]

_GRADIENT: Final = "Gradient___"


class _Given(Protocol):
    """The arguments of a session."""

    @property
    def model(self) -> onnx.ModelProto: ...
    @property
    def flow(self) -> DataFlow: ...
    @property
    def options(self) -> SessionOptions: ...
    @property
    def loss(self) -> str: ...
    @property
    def optimizer(self) -> Optimizer | None: ...


def check_setup(given: _Given) -> None:
    """Check names and numbers, before anything is compiled.

    Raises:
        popart_exception: the first mistake, in PopART's order.
    """
    for problem in _problems(given):
        raise popart_exception(problem)


def _problems(given: _Given) -> Iterator[str]:
    yield from _name_problems(given.model)
    yield from _option_problems(given.options, trains=given.optimizer is not None)
    yield from placement_problems(
        given.model,
        given.options,
        batches=given.flow.batchesPerStep(),
        trains=given.optimizer is not None,
    )
    yield from refusals(given.model, pipelines=bool(given.options.enablePipelining))
    known = all_names(given.model)
    if given.optimizer is not None and given.loss not in known:
        yield f"Could not find loss tensor '{given.loss}' in main graph tensors"
    anchors = given.flow.anchors()
    for name in _unknown_anchors(anchors, known, given.loss):
        yield no_anchor(name, given.model).args[0]
    if given.optimizer is None and not _computes(given.model, given.flow):
        yield "All operations in the main graph were pruned, nothing to compute"


def _unknown_anchors(anchors: Sequence[str], known: Collection[str], loss: str) -> Iterator[str]:
    """Anchors that neither the model has nor training, which there is with a loss, can add."""
    of_model, added = training_anchors(anchors, loss)
    for name in of_model if loss else anchors:
        if name not in known and not reserved_prefix_of(name):
            yield name
    gradients = (name for name in added if name.startswith(_GRADIENT))
    yield from (name for name in gradients if name.removeprefix(_GRADIENT) not in known)


def no_anchor(name: str, model: onnx.ModelProto) -> popart_exception:
    """The error that there is no tensor of an anchor's name."""
    listed = ", ".join(sorted(all_names(model)))
    return popart_exception(f"Anchor tensor `{name}' not in Ir Tensors. The tensors are: {listed}")


def _name_problems(model: onnx.ModelProto) -> Iterator[str]:
    states = {weight.name for weight in model.graph.initializer}  # those that training has written
    for name in all_names(model):
        prefix = reserved_prefix_of(name)
        if prefix and name not in states:
            yield (
                f"Provided tensor {name} has an invalid name: clash with reserved prefix {prefix}"
            )


def _option_problems(options: SessionOptions, *, trains: bool) -> Iterator[str]:
    if not trains and options.enableGradientAccumulation:
        yield "Gradient Accumulation only available when training."
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        yield (
            f"enableGradientAccumulation is false, but accumulationFactor > 1. Either enable "
            f"gradient accumulation, or set the accumulation factor to 1. It is "
            f"{options.accumulationFactor}."
        )
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        yield (
            f"enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable "
            f"replicated graphs, or set the replicated graph count to 1. It is "
            f"{options.replicatedGraphCount}."
        )


def _computes(model: onnx.ModelProto, flow: DataFlow) -> bool:
    """True if a node of the model makes an anchor, or has an effect."""
    anchors = set(flow.anchors())
    return any(
        node.op_type in EFFECTS or not anchors.isdisjoint(node.output) for node in model.graph.node
    )


def check_loss(name: str, found: TensorType | None) -> None:
    """Check that the loss, if a session has one, is a scalar.

    Raises:
        popart_exception: it has several elements.
    """
    if name and found is not None and found.size != 1:
        raise popart_exception(
            f"Loss tensor, '{name}', must be a scalar tensor, but has shape {list(found.shape)}"
        )


def check_device(options: SessionOptions, device: DeviceInfo, model: onnx.ModelProto) -> None:
    """Check that the device has an IPU for each virtual graph, and knows its options.

    Raises:
        popart_exception: it has not.
        poplar_exception: there is no such option of Poplar's engine.
    """
    check_engine_options(options)
    highest = highest_virtual_graph(options, model)
    ipus = 1 if device.type is DeviceType.Cpu else device.numIpus // replicas_of(options)
    if highest >= max(ipus, 1):
        raise popart_exception(
            f"{_placed_text(model, ipus)} has been assigned to an invalid virtual graph {highest}. "
            f"numIPUs = {ipus}."
        )


def _placed_text(model: onnx.ModelProto, ipus: int) -> str:
    """The first op on an IPU that there is not; what it reads from others has been copied there."""
    opset = next((item.version for item in model.opset_import if not item.domain), 1)
    makers = {name: place_of(node) for node in nodes_of(model.graph) for name in node.output}
    for node in nodes_of(model.graph):
        here = place_of(node)
        if here is not None and here >= ipus:
            away = {name for name in node.input if makers.get(name, here) != here}
            read = [f"{name}_c{here}" if name in away else name for name in node.input]
            return op_text(node, opset, read)
    return "An op"
