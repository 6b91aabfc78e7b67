"""The host's copies of variables: what is sent to the device, and what came back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from popc.popart.arrays import fill_tensor, set_data
from popc.popart.enums import VariableRetrievalMode
from popc.popart.errors import (
    popart_exception,
    popart_internal_exception,
    popart_runtime_error,
)
from popc.popart.groups import VariableSettings
from popc.popart.loading import LABELS_OUTSIDE
from popc.popart.prefixes import COUNTER_PREFIX, SUM_PREFIX
from popc.popart.stepio import PyWeightsIO, copy_raw
from popc_runtime import Executable, VariableRole, VariableSpec

__all__ = ["HostWeights"]

_Array = np.ndarray[Any, Any]
_T: Final = onnx.TensorProto
_SENT: Final = (VariableRole.WEIGHT, VariableRole.OPTIMIZER_STATE)


class HostWeights:
    """Values of variables on the host.

    ``host`` is what the next transfer to the device sends, ``streams`` what the last one from it
    brought, as the retrieval modes of ``settings`` say: a row for each group of replicas, or for
    each replica.  Weights that are constants of the program, or that it does not have as
    variables, keep the values of the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        base: str,
        unused: set[str],
        settings: Mapping[str, VariableSettings],
        replicas: int,
    ) -> None:
        self._model = model
        self._settings = settings
        self._groups = {name: setting.groups(replicas) for name, setting in settings.items()}
        self._replicas = replicas
        self._specs: dict[str, VariableSpec] = {}
        self.host: dict[str, _Array] = {}
        self._unread: dict[str, _Array] = {}  # the state of an optimizer, perhaps
        self._sums: dict[str, _Array] = {}
        for weight in model.graph.initializer:
            if weight.data_type != _T.STRING:
                kept = self._unread if weight.name in unused else self.host
                kept[weight.name] = np.array(onnx.numpy_helper.to_array(weight, base))
        self.streams: dict[str, _Array] = {
            name: self._returned(name, array) for name, array in self.host.items()
        }

    def connect(
        self, executable: Executable, sums: Mapping[str, str], *, has_state: bool = True
    ) -> None:
        """Learn of the variables of a program; state begins as the model or the program has it.

        Args:
            executable: The program.
            sums: Tensors that hold the sum of the gradients of a weight, or their number, with
                their dtypes of numpy.  Between steps, when the host may look at them, they are 0.
            has_state: Whether the state of the optimizer is read and written.

        Raises:
            popart_exception: the model has another value for a sum.
        """
        state = executable.state
        sent = _SENT if has_state else (VariableRole.WEIGHT,)
        self._specs = {spec.name: spec for spec in state.specs if spec.role in sent}
        for name, value in state.read().items():
            if name not in self._specs:
                continue
            given = self.host.get(name, self._unread.get(name))
            shape = self._specs[name].host_shape
            if given is None:
                self.host[name] = value.copy()
            elif given.shape == shape:
                self.host[name] = given
            elif given.size == value.size:
                self.host[name] = given.reshape(shape)
            else:
                self.host[name] = np.broadcast_to(given, shape).copy()
            self.streams[name] = self._returned(name, self.host[name])
        for name, dtype in sums.items():
            spec = self._specs.get(name.removeprefix(SUM_PREFIX))
            counts = name.startswith(COUNTER_PREFIX) and name not in self._specs
            if counts or spec is not None:
                self._sums[name] = np.zeros(spec.host_shape if spec else (), dtype)
                _require_zeros(name, self._unread.get(name))

    def _mode(self, name: str) -> VariableRetrievalMode:
        known = self._settings.get(name)
        if known is None or self._replicas == 1:
            return VariableRetrievalMode.OnePerGroup
        return known.getRetrievalMode()

    def _returned(self, name: str, value: _Array) -> _Array:
        """Values of the groups (one has no row) as they are read back: a copy."""
        if self._mode(name) is not VariableRetrievalMode.AllReplicas:
            return value.copy()
        groups = self._groups[name]
        rows = value[None] if len(groups) == 1 else value
        spread = np.empty((self._replicas, *rows.shape[1:]), rows.dtype)
        for row, members in zip(rows, groups, strict=True):
            spread[members] = row
        return spread

    def _of_groups(self, name: str, value: _Array) -> _Array:
        """``value``, as it was read back, as the host has it: a row for each of several groups."""
        if self._mode(name) is not VariableRetrievalMode.AllReplicas:
            return value
        rows: _Array = value[[members[0] for members in self._groups[name]]]
        return rows[0] if len(rows) == 1 else rows

    @property
    def names(self) -> list[str]:
        """All that is kept on the host."""
        return list(self.host)

    def send(self, executable: Executable) -> None:
        """Write the values of the host to the device."""
        values = {}
        for name, spec in self._specs.items():
            value = self.host[name]
            storage = spec.dtype.storage
            values[name] = value if value.dtype == storage else value.view(storage)
        if values:
            executable.state.write(values)

    def fetch(self, executable: Executable) -> None:
        """Read the values of the device."""
        if not self._specs:
            return
        values = executable.state.read()
        one = VariableRetrievalMode.OnePerGroup
        special = [n for n in values if n in self._specs and self._mode(n) is not one]
        every = executable.state.read(every_replica=True) if special else {}
        for name in special:
            if self._specs[name].whole:  # replicas have parts of it, and gather the same whole
                values[name] = self._returned(name, values[name])
            else:
                values[name] = self._of_replicas(name, every[name])
        for name, value in values.items():
            if name in self._specs:
                held = self.host[name].dtype
                self.streams[name] = value.view(held) if held != value.dtype else value

    def _of_replicas(self, name: str, rows: _Array) -> _Array:
        """The values of all replicas, or the mean of those of each group."""
        if self._mode(name) is VariableRetrievalMode.AllReplicas:
            return rows
        groups = self._groups[name]
        means = np.stack([rows[members].mean(0, dtype=np.float64) for members in groups])
        found: _Array = means.astype(rows.dtype)
        return found[0] if len(groups) == 1 else found

    def read(self, weights: PyWeightsIO) -> None:
        """Copy what came from the device into arrays.

        Raises:
            popart_runtime_error: an array has another size.
        """
        for name, array in weights.weights.items():
            source = self.streams.get(name, self._sums.get(name))
            if source is None:
                continue
            if source.nbytes != array.nbytes:
                raise popart_runtime_error(
                    f"sizes (in bytes) of src ({source.nbytes}) and dst ({array.nbytes}) differ in "
                    f"hostStreamToHost for {name}"
                )
            if array.size:
                copy_raw(array.reshape(-1), source)

    def write(self, weights: PyWeightsIO) -> None:
        """Take values from arrays.

        Raises:
            popart_internal_exception: an array has another shape.
            popart_exception: it has another size in bytes, or is for a sum and not 0.
        """
        for name, array in weights.weights.items():
            if name in self._sums:
                _require_zeros(name, array)
            target = self.host.get(name)
            if target is None:
                continue
            wanted = self._returned(name, target)
            if tuple(array.shape) != wanted.shape:
                raise popart_internal_exception(
                    f"The shape {list(array.shape)} of the array for {name} does not not match the "
                    f"expected write region {list(wanted.shape)}"
                )
            if array.nbytes != wanted.nbytes:
                raise popart_exception(
                    f"cannot reset tensor data with data of non-matching size: {name} has "
                    f"{wanted.nbytes} bytes, not {array.nbytes}"
                )
            given = array.view(target.dtype).reshape(wanted.shape)
            self.host[name] = self._of_groups(name, given).copy()

    def reset(self, model: onnx.ModelProto, folder: str, *, ignore_unknown: bool) -> None:
        """Take the values of a model's initializers.

        Raises:
            popart_runtime_error: there is no such weight, or it has another type.
            popart_exception: a sum is not 0.
        """
        for weight in model.graph.initializer:
            if weight.name in self._sums:
                _require_zeros(weight.name, onnx.numpy_helper.to_array(weight, folder))
                continue
            target = self.host.get(weight.name)
            if target is None:
                if ignore_unknown:
                    continue
                raise popart_runtime_error(f"resetWeights, no tensor '{weight.name}' in tensors")
            value = np.array(onnx.numpy_helper.to_array(weight, folder))
            if value.dtype != target.dtype or value.size != target.size:
                raise popart_runtime_error(
                    f"Trying to reset weights using tensor with non matching tensor info. Tensor "
                    f"ID: {weight.name}"
                )
            self.host[weight.name] = value.reshape(target.shape)

    def keep_fetched(self) -> None:
        """Make what came from the device the values of the host."""
        for name in self._specs:
            self.host[name] = self._of_groups(name, self.streams[name]).copy()

    def save_model(self, path: str) -> None:
        """Write the model with the values that came from the device, and the optimizer's state.

        Raises:
            popart_exception: the file cannot be written.
            popart_runtime_error: a file of external data cannot be written.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        for node in model.graph.node:
            for place in reversed(range(len(node.attribute))):
                if node.attribute[place].name == LABELS_OUTSIDE:
                    del node.attribute[place]
        known = {weight.name: weight for weight in model.graph.initializer}
        values = {name: self._of_groups(name, self.streams[name]) for name in self._specs}
        sums = {n: value for n, value in self._sums.items() if not n.startswith(COUNTER_PREFIX)}
        for name, value in (values | sums).items():
            if name not in known:
                fill_tensor(model.graph.initializer.add(name=name), value)
            elif known[name].data_location == _T.EXTERNAL:
                _write_external(known[name], value)
            else:
                set_data(known[name], value, raw=known[name].HasField("raw_data"))
        try:
            Path(path).write_bytes(model.SerializeToString(deterministic=True))
        except OSError as error:
            raise popart_exception(f"Failed to open file {path}") from error

    def move_external(self, old: str, new: str) -> None:
        """Copy the data of weights in file ``old`` to ``new``, which they refer to from now on.

        Raises:
            popart_runtime_error: ``new`` exists, ``old`` does not, or no weight is in it.
        """
        moved = [
            entry
            for weight in self._model.graph.initializer
            if weight.data_location == _T.EXTERNAL
            for entry in weight.external_data
            if (entry.key, entry.value) == ("location", old)
        ]
        what = f"Cannot move external data from '{old}' to '{new}'"
        if Path(new).exists():
            raise popart_runtime_error(f"{what}, but file '{new}' already exists")
        if not Path(old).is_file():
            raise popart_runtime_error(f"{what}: file '{old}' does not exist")
        if not moved:
            raise popart_runtime_error(
                f"No ONNX model initializers have external location set to '{old}'"
            )
        shutil.copyfile(old, new)
        for entry in moved:
            entry.value = new


def _require_zeros(name: str, value: _Array | None) -> None:
    if value is not None and value.any():
        raise popart_exception(
            f"'{name}' adds up the gradients of a step, and begins as 0 here: it cannot be given "
            f"other values"
        )


def _write_external(weight: onnx.TensorProto, value: _Array) -> None:
    entries: Mapping[str, str] = {item.key: item.value for item in weight.external_data}
    path = Path(entries["location"])
    try:
        with path.open("r+b") as file:
            file.seek(int(entries.get("offset", "0")), os.SEEK_SET)
            file.write(np.ascontiguousarray(value).tobytes())
    except OSError as error:
        raise popart_runtime_error(f"Failed to open file {path}") from error
