"""Losses of ai.graphcore, PopART's own domain, and CTC decoding.

The schemas of this domain are not part of onnx, so defaults of attributes are given here.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import Unavailable, Value
from popc.ir import Tensor
from popc.ops.loss_forms import ctc_loss, l1_loss, nll_loss, reduced
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_DOMAIN: Final = "ai.graphcore"
# PopART's builder writes "None", and its documentation says "NoReduction".
_REDUCTIONS: Final = {"Mean": "mean", "None": "none", "NoReduction": "none", "Sum": "sum"}


def _reduction(node: Node) -> str:
    name = node.text("reduction", "Mean")
    if name not in _REDUCTIONS:
        raise ModelError(f"reduction {name!r} is not one of {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def _identity_loss(node: Node) -> Tensor:
    return reduced(node, node.input(0), _reduction(node))


def _l1(node: Node) -> Tensor:
    return l1_loss(node, node.input(0), node.number("lambda"), _reduction(node))


def _nll(node: Node) -> Tensor:
    return nll_loss(
        node,
        node.input(0),
        node.input(1),
        _reduction(node),
        ignore_index=node.integer("ignoreIndex") if node.has("ignoreIndex") else None,
        log_probability=bool(node.integer("inputIsLogProbability", 0)),
        outside=bool(node.integer("__labels_outside", 0)),
    )


def _ctc(node: Node) -> list[Value | None]:
    operands = [node.input(index) for index in range(4)]
    loss = ctc_loss(
        node,
        operands,
        _reduction(node),
        blank=_blank(node, operands[0]),
        zero_infinity=bool(node.integer("zeroInfinity", 0)),
        dtype=_output_dtype(node),
    )
    return [
        loss,
        Unavailable("the gradient that PopART's Ctc has as second output is not available"),
    ]


def _blank(node: Node, logs: Tensor) -> int:
    """The blank among the classes; counted from the end where it is negative, as TensorFlow does.

    PopART's default is the first class.
    """
    blank = node.integer("blank", 0)
    return blank + logs.type.shape[-1] if blank < 0 and logs.type.rank else blank


def _output_dtype(node: Node) -> DType | None:
    """PopART's builder writes the number of an ONNX type, 0 for that of the input."""
    number = node.integer("outDataType", 0)
    return dtype_from_onnx(number) if number else None


def _beam_search(node: Node) -> list[Value | None]:
    logs = node.input(0)
    attributes = {
        "blank": _blank(node, logs),
        "beam_width": node.integer("beam_width", 100),
        "top_paths": node.integer("top_paths", 1),
    }
    return list(node.emit_all("CtcBeamSearchDecoder", [logs, node.input(1)], attributes))


_BY_NAME: Final[dict[str, ImportRule]] = {
    "Ctc": _ctc,
    "CtcBeamSearchDecoder": _beam_search,
    "IdentityLoss": _identity_loss,
    "L1": _l1,
    "Nll": _nll,
}

RULES: Final = {(_DOMAIN, op_type): rule for op_type, rule in _BY_NAME.items()}
