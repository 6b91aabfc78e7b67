"""The native classes of operators: one per opset of ai.onnx, one of ai.graphcore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from popc.popart.calls import (
    DEBUG,
    FLOAT,
    INT,
    INTS,
    STR,
    STRS,
    Parameter,
    bind,
    list_of,
    optional,
)
from popc.popart.errors import popart_exception
from popc.popart.opsets import ai_graphcore, ai_onnx
from popc.popart.opsets.checks import check_window
from popc.popart.opsets.maker import methods_of
from popc.popart.opsets.rows import Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from popc.popart.builder_core import _BuilderCore

__all__ = [
    "GRAPHCORE_ROWS",
    "ONNX_ROWS",
    "OPSETS",
    "AiGraphcoreOpset1",
    "AiOnnxOpset6",
    "AiOnnxOpset7",
    "AiOnnxOpset8",
    "AiOnnxOpset9",
    "AiOnnxOpset10",
    "AiOnnxOpset11",
]

GRAPHCORE: Final = "ai.graphcore"
ONNX_ROWS: Final[tuple[Row, ...]] = read_rows(ai_onnx.TABLE, onnx=True)
GRAPHCORE_ROWS: Final[tuple[Row, ...]] = read_rows(ai_graphcore.TABLE, onnx=False)


class _Opset:
    """Operators of one version of a domain; methods come from the tables."""

    __slots__ = ("_core",)

    def __init__(self, builder: _BuilderCore) -> None:
        self._core = builder

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


class AiOnnxOpset6(_Opset):
    """ai.onnx, opset 6."""

    __slots__ = ()


class AiOnnxOpset7(_Opset):
    """ai.onnx, opset 7."""

    __slots__ = ()


class AiOnnxOpset8(_Opset):
    """ai.onnx, opset 8."""

    __slots__ = ()


class AiOnnxOpset9(_Opset):
    """ai.onnx, opset 9."""

    __slots__ = ()


class AiOnnxOpset10(_Opset):
    """ai.onnx, opset 10."""

    __slots__ = ()


class AiOnnxOpset11(_Opset):
    """ai.onnx, opset 11."""

    __slots__ = ()


_PER_CONV: Final = ("dilations", "inDilations", "pads", "outPads", "strides")
_MULTICONV: Final = (
    Parameter("args", list_of(STRS)),
    *(Parameter(name, list_of(INTS), []) for name in _PER_CONV),
    Parameter("availableMemoryProportions", list_of(FLOAT), []),
    Parameter("partialsTypes", list_of(STR), []),
    Parameter("planType", optional(STR), None),
    Parameter("perConvReservedTiles", optional(INT), None),
    Parameter("cycleBackOff", optional(FLOAT), None),
    Parameter("enableConvDithering", INTS, []),
    Parameter("debugContext", DEBUG, "", ("debugPrefix",)),
)


class AiGraphcoreOpset1(_Opset):
    """ai.graphcore, opset 1."""

    __slots__ = ()

    def multiconv(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add several convolutions as one operator; the names of their results.

        Parameters, in order: ``args``, a list of [data, weights] or [data, weights, bias];
        ``dilations``, ``inDilations``, ``pads``, ``outPads``, ``strides``,
        ``availableMemoryProportions``, ``partialsTypes``, each empty or with an entry for each
        convolution; ``planType``, ``perConvReservedTiles``, ``cycleBackOff``,
        ``enableConvDithering``, ``debugContext``.

        Raises:
            popart_exception: numbers of inputs or parameters do not fit.
        """
        _, bound = bind("multiconv", [_MULTICONV], args, kwargs)
        values = {parameter.name: value for parameter, value in zip(_MULTICONV, bound, strict=True)}
        inputs: list[list[str]] = values.pop("args")
        debug = values.pop("debugContext")
        _check_convolutions(self._core, inputs, values)
        outputs = self._core.new_results("MultiConv", len(inputs))
        flat = [name for group in inputs for name in (*group, "")[:3]]
        attributes = {
            name: _flat(value) for name, value in values.items() if value not in ([], None)
        }
        attributes["numConvs"] = len(inputs)
        operator = (GRAPHCORE, "MultiConv", 1)
        ordered = dict(sorted(attributes.items()))
        self._core.add_op(operator, flat, outputs, ordered, debug, "multiconv")
        return outputs


def _check_convolutions(
    core: _BuilderCore, inputs: Sequence[Sequence[str]], values: dict[str, Any]
) -> None:
    """Check the inputs and the numbers of each convolution."""
    if not inputs:
        raise popart_exception("MultiConv has no inputs: at least one convolution is needed")
    for index, group in enumerate(inputs):
        where = f"MultiConv: convolution {index} has {len(group)} inputs, but"
        if len(group) < 2:
            raise popart_exception(f"{where} must have at least two inputs - data and weights")
        if len(group) > 3:
            raise popart_exception(
                f"{where} can have at most three inputs - data, weights, and bias"
            )
    for name, value in values.items():
        if isinstance(value, list) and value and len(value) != len(inputs):
            raise popart_exception(
                f"MultiConv: the number of {name} parameter sets ({len(value)}) does not match the "
                f"number of input sets ({len(inputs)})"
            )
    for index, group in enumerate(inputs):
        for name in group:
            core.require_tensor(name)
        window = {name: values[name][index] for name in _PER_CONV if values[name]}
        shapes = [core.shape_of(name) for name in group]
        if window.get("inDilations") or window.get("outPads"):
            check_window(group, shapes, window, None)
        else:
            check_window(group, shapes, window, None if shapes[1] is None else shapes[1][2:])


def _flat(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [number for numbers in value for number in numbers]
    return value


OPSETS: Final[dict[int, type[_Opset]]] = {
    6: AiOnnxOpset6,
    7: AiOnnxOpset7,
    8: AiOnnxOpset8,
    9: AiOnnxOpset9,
    10: AiOnnxOpset10,
    11: AiOnnxOpset11,
}
for _version, _class in OPSETS.items():
    for _name, _made in methods_of(ONNX_ROWS, "", _version).items():
        setattr(_class, _name, _made)
for _name, _made in methods_of(GRAPHCORE_ROWS, GRAPHCORE, 1).items():
    setattr(AiGraphcoreOpset1, _name, _made)
