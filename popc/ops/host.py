"""Transfers between host streams and the device, and between sets of tiles."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integers, text
from popc.ops.infer import attribute_dtype, check_choice, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS", "TILE_SETS"]

TILE_SETS: Final = ("compute", "io")


def _loaded(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del inputs
    return (TensorType(attribute_dtype(attributes, "dtype"), integers(attributes, "shape")),)


def _stored(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del inputs, attributes
    return ()


def _copied(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The operand, on the tiles ``destination`` rather than ``source``: "io" and "compute"."""
    for name in ("source", "destination"):
        check_choice(attributes, name, TILE_SETS)
    if text(attributes, "source") == text(attributes, "destination"):
        raise ModelError(f"copies from {text(attributes, 'source')} tiles to themselves")
    return (operand(inputs, 0),)


OPS: Final[dict[str, OpSpec]] = {
    "HostLoad": OpSpec(_loaded, side_effect=True),
    "HostStore": OpSpec(_stored, side_effect=True),
    "IoTileCopy": OpSpec(_copied),
}
