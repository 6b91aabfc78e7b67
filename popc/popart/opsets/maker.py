"""From a row of a table to a method that adds an operator to a builder's graph."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from popc.popart.calls import REQUIRED, bind
from popc.popart.errors import popart_exception
from popc.popart.graph_model import GraphModel
from popc.popart.opsets.checks import CHECKS
from popc.popart.opsets.rows import Row

if TYPE_CHECKING:
    from popc.popart.builder_core import _BuilderCore

__all__ = ["methods_of", "rows_at"]


def rows_at(rows: Iterable[Row], opset: int) -> dict[str, list[Row]]:
    """The forms of each method at an opset: those of the latest line up to it."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.opset > opset:
            continue
        known = found.get(row.method)
        if known and known[0].opset == row.opset:
            known.append(row)
        else:
            found[row.method] = [row]
    return found


def methods_of(rows: Iterable[Row], domain: str, opset: int) -> dict[str, Callable[..., Any]]:
    """A method for each name, of a class whose instances hold the builder's core as ``_core``."""
    return {name: _method(forms, domain, opset) for name, forms in rows_at(rows, opset).items()}


def _method(rows: Sequence[Row], domain: str, opset: int) -> Callable[..., Any]:
    name, forms = rows[0].method, [row.form for row in rows]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        index, values = bind(name, forms, args, kwargs)
        return _add(self._core, rows[index], rows[index].named(values), (domain, opset))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = _description(rows[0], domain)
    method.__dict__["__signature__"] = _signature(rows[0])
    return method


def _description(row: Row, domain: str) -> str:
    outputs = "any number of" if row.outputs is None else str(row.outputs)
    return (
        f"Add {domain or 'ai.onnx'}.{row.op_type}, version {row.version}: {row.inputs_range} "
        f"inputs, {outputs} outputs.\n\nReturns the {'name' if row.is_single else 'names'} of what "
        f"it computes.\n\nRaises:\n    popart_exception: inputs or parameters do not fit."
    )


def _signature(row: Row) -> inspect.Signature:
    """For tools; what is required behind something optional, must be given all the same."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind)]
    optional = False
    for parameter in row.form:
        optional = optional or parameter.default is not REQUIRED
        default = inspect.Parameter.empty if not optional else parameter.default
        name = f"{parameter.name}_" if keyword.iskeyword(parameter.name) else parameter.name
        parameters.append(
            inspect.Parameter(name, kind, default=... if default is REQUIRED else default)
        )
    return inspect.Signature(parameters)


# -- adding ----------------------------------------------------------------------------------------


def _add(core: _BuilderCore, row: Row, values: dict[str, Any], operator: tuple[str, int]) -> Any:
    """Add the node of a row; what the method returns.

    Raises:
        popart_exception: inputs or parameters do not fit, or the opset is another one.
    """
    given = values.pop("args", [])
    inputs = [given] if isinstance(given, str) else given
    outputs = core.new_results(row.op_type, _output_count(row, values.get("num_outputs")))
    require_inputs(core, row, inputs)
    if row.op_type == "CopyVarUpdate":
        _require_variable(core, inputs)
    check = CHECKS.get(row.op_type)
    if check is not None:
        check(inputs, [core.shape_of(name) for name in inputs], values)
    attributes = _attributes(row, values)
    core.adopt(value for value in values.values() if isinstance(value, GraphModel))
    domain, opset = operator
    core.add_op(
        (domain, row.op_type, opset), inputs, outputs, attributes, values["debug"], row.method
    )
    if row.is_single:
        return outputs[0]
    if row.outputs == 0:
        return None
    return outputs[: row.returned] if row.returned else outputs


def _output_count(row: Row, wanted: int | None) -> int:
    if wanted is None:
        assert row.outputs is not None, row
        return row.outputs
    if wanted < 0 or (row.outputs is not None and wanted > row.outputs):
        raise popart_exception(
            f"{row.op_type} has an invalid number of outputs {wanted}. Must be between "
            f"0..{'inf' if row.outputs is None else row.outputs}"
        )
    return wanted


def require_inputs(core: _BuilderCore, row: Row, inputs: Sequence[str]) -> None:
    """Check the number of inputs and that all exist.

    Raises:
        popart_exception: there are too many or too few, or one is unknown.
    """
    count = len(inputs)
    too_many = row.most is not None and count > row.most
    if row.fewest and (count < row.fewest or too_many):
        raise popart_exception(
            f"{row.op_type} has invalid number of inputs {count}. Must be between "
            f"{row.inputs_range}"
        )
    for index, name in enumerate(inputs):
        is_left_out = not name and (index >= row.fewest or _may_be_empty(row, index))
        if not is_left_out:
            core.require_tensor(name)


def _require_variable(core: _BuilderCore, inputs: Sequence[str]) -> None:
    """Check that a weight is to be written.

    Raises:
        popart_exception: there are not two inputs, or the first is no weight.
    """
    if len(inputs) != 2:
        raise popart_exception("copyvarupdate should have two args.")
    if not core.isInitializer(inputs[0]):
        raise popart_exception("The first arg of copyvarupdate should be an initalised tensor.")


def _may_be_empty(row: Row, index: int) -> bool:
    """The scales of Resize-11 may be left out if sizes are given."""
    return (row.op_type, row.version, index) == ("Resize", 11, 2)


def _attributes(row: Row, values: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that are stored, by name."""
    found: dict[str, Any] = dict(row.constants)
    for name, attribute in row.attributes.items():
        if attribute.is_stored(values[name]):
            stored = attribute.kind.stored(values[name])
            if stored is not None:
                found[attribute.name] = stored
    return dict(sorted(found.items()))
