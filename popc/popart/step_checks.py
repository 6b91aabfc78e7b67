"""The check of a step's arrays, which the first run of a session makes."""

from __future__ import annotations

from popc.popart.anchor_arrays import StepSizes
from popc.popart.enums import ReplicatedStreamMode
from popc.popart.errors import popart_internal_exception, popart_runtime_error
from popc.popart.logger import log
from popc.popart.model_names import all_names
from popc.popart.session_setup import Setup
from popc.popart.stepio import PyStepIO
from popc.popart.tensorinfo import _TensorInfoCore

__all__ = ["check_counts"]


def check_counts(setup: Setup, stepio: PyStepIO) -> None:
    """Check the numbers of elements of a step's arrays.

    Raises:
        popart_runtime_error: an array has too many or too few, or there is no such tensor.
        popart_internal_exception: an array is for a tensor that is no anchor.
    """
    known = setup.ids()
    names = all_names(setup.model)
    inputs = {info.name for info in setup.model.graph.input}
    for name in sorted(stepio.inputs):
        if name in known:
            _check_input(setup, name, stepio.inputs[name].size, inputs)
        elif name in names:
            log("session", "WARN", f"The tensor '{name}' is not needed, and is ignored")
        else:
            raise popart_runtime_error(_unknown("input", name))
    for name in sorted(stepio.outputs):
        if name not in known and setup.found_type(name) is None:
            raise popart_runtime_error(_unknown("output", name))
        if not setup.flow.isAnchored(name):
            raise popart_internal_exception(
                f"Non-anchored Tensor {name} is an output of the StepIO"
            )
        _check_output(setup, name, stepio.outputs[name].size)


def _check_input(setup: Setup, name: str, given: int, inputs: set[str]) -> None:
    info, sizes = setup.info(name), setup.sizes
    expected = sizes.input_count(info, broadcast=_is_broadcast(setup, name))
    if given != expected:
        raise popart_runtime_error(
            f"Unexpected number of input elements for Tensor {name}. Expected {expected}, but "
            f"received {given}.\n{_factors(sizes, info)}"
        )
    if name not in inputs:
        raise popart_runtime_error(
            f"The tensor '{name}' has been provided as one of the inputs to the stepIO, but it "
            f"is not registered as one of the inputs to the model. Please check your model "
            f"construction."
        )


def _check_output(setup: Setup, name: str, given: int) -> None:
    info, sizes, kind = setup.info(name), setup.sizes, setup.flow.art(name)
    expected = sizes.anchor_count(kind, info)
    if given != expected:
        raise popart_runtime_error(
            f"Unexpected number of output elements for Tensor {name}. Expected {expected}, but "
            f"received {given}.\n{_factors(sizes, info)}, return type {kind.id().name}"
        )


def _is_broadcast(setup: Setup, name: str) -> bool:
    key, mode = f"__replicated_stream_mode/{name}", int(ReplicatedStreamMode.Broadcast)
    facts = {item.key: item.value for item in setup.model.metadata_props}
    return facts.get(key) == str(mode)


def _factors(sizes: StepSizes, info: _TensorInfoCore) -> str:
    return (
        f"To disable this check, call enableRuntimeAsserts(False) on the StepIO. The numbers are: "
        f"replication factor {sizes.replicas}, accumulation factor {sizes.accumulation}, batches "
        f"per step {sizes.batches}, elements {info.nelms()}"
    )


def _unknown(kind: str, name: str) -> str:
    return (
        f"Testing that the buffer provided by user for {kind} Tensor {name} has the correct number "
        f"of elements, But there is no Tensor named {name} in the Ir's main Graph."
    )
