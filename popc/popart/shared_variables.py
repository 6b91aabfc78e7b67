"""Variables that groups of replicas share: what the model says, and what a replica holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx

from popc.frontend import LoadedModel
from popc.popart.arrays import fill_tensor
from popc.popart.enums import CommGroupType, VariableRetrievalMode
from popc.popart.errors import popart_exception
from popc.popart.groups import CommGroup, VariableSettings

__all__ = ["on_one_replica", "variable_settings"]


def variable_settings(model: onnx.ModelProto) -> dict[str, VariableSettings]:
    """The settings of those weights of a model that have others than the default ones."""
    facts = {item.key: item.value for item in model.metadata_props}
    found: dict[str, VariableSettings] = {}
    for name in (weight.name for weight in model.graph.initializer):
        kind = CommGroupType(int(facts.get(f"__comm_group_type/{name}", "0")))
        size = int(facts.get(f"__comm_group_size/{name}", "0"))
        mode = VariableRetrievalMode(int(facts.get(f"__variable_settings/{name}", "0")))
        if kind is not CommGroupType.All or mode is not VariableRetrievalMode.OnePerGroup:
            found[name] = VariableSettings(CommGroup(kind, size), mode)
    return found


def on_one_replica(
    loaded: LoadedModel, settings: Mapping[str, VariableSettings], replicas: int
) -> LoadedModel:
    """The model with the weights of the first group in place of those of all groups.

    Raises:
        popart_exception: a weight has not as many rows as there are groups.
    """
    counts = {name: setting.getGroupCount(replicas) for name, setting in settings.items()}
    names = {name for name, count in counts.items() if count > 1}
    if not names:
        return loaded
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    model.graph.ClearField("value_info")  # shapes that follow from the rows
    for weight in model.graph.initializer:
        if weight.name in names:
            _require_rows(weight, counts[weight.name])
            value = np.array(onnx.numpy_helper.to_array(weight, loaded.base_dir))
            name = weight.name
            weight.Clear()
            weight.name = name
            fill_tensor(weight, value[0])
    for info in model.graph.input:
        if info.name in names:
            del info.type.tensor_type.shape.dim[0]
    return replace(loaded, proto=model)


def _require_rows(weight: onnx.TensorProto, count: int) -> None:
    if not weight.dims or weight.dims[0] != count:
        raise popart_exception(
            f"Incorrect size of tensor {weight.name}. Tensor shape at index 0 (of "
            f"{list(weight.dims)}) should be == group_size, the number of groups, which is {count}"
        )
