"""The facts that the compiler knows about an op: its type rule and its properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from popc.ir import TensorType
from popc_runtime.format import Attributes
from popc_runtime.ground.frozen import frozen

__all__ = ["InferRule", "OpSpec", "OperandTypes", "OutputView", "ViewRule"]

OperandTypes: TypeAlias = Sequence[TensorType | None]
# Types of the outputs from types of the inputs (None: absent) and the attributes.  A rule checks
# what it relies on and raises ModelError with the reason; the caller adds the op's name.
InferRule: TypeAlias = Callable[[OperandTypes, Attributes], tuple[TensorType, ...]]


@frozen
class OutputView:
    """The place of an output in the memory of input 0: byte offset and byte strides."""

    offset: int
    strides: tuple[int, ...]


# (type and byte strides of input 0, type of an output, its index, attributes) -> its view, or None
# if the output cannot be expressed as a strided view of that input.
ViewRule: TypeAlias = Callable[
    [TensorType, tuple[int, ...], TensorType, int, Attributes], "OutputView | None"
]


@frozen
class OpSpec:
    """One row of the op table.

    Attributes:
        infer: Type rule.
        inplace: Inputs whose memory output 0 may take over when they have the same type and die
            here.  List an input only if the kernel reads each of its elements before (or
            together with) writing the same element of the output, and never reads it again.
        view: Set for ops that can be a strided view of input 0 instead of moving data.
        elementwise: Output 0 has the broadcast shape of the inputs and each element depends only
            on the corresponding input elements.
        commutative: Inputs 0 and 1 may be swapped.
        random: Draws from the device's random numbers: never folded, merged or removed as a copy.
        side_effect: Kept although nobody reads its outputs.
        collective: All replicas of a program run it together: never computed by the compiler.
        per_replica: Differs from replica to replica: never computed by the compiler.
        transfer: Moves data between a chip and streaming memory, at the time that was chosen for
            that: never merged, folded or hoisted.
        foreign: The kernel is the user's: never computed by the compiler.
        strided_input: The kernel is as fast, or nearly, on strided operands, so that a view op in
            front of it needs no copy.
        strided_output: The kernel writes a result in any memory format as fast, or nearly (see
            `popc.memory.formats`), and reads operands in any.
    """

    infer: InferRule
    inplace: tuple[int, ...] = ()
    view: ViewRule | None = None
    elementwise: bool = False
    commutative: bool = False
    random: bool = False
    side_effect: bool = False
    collective: bool = False
    per_replica: bool = False
    transfer: bool = False
    foreign: bool = False
    strided_input: bool = True
    strided_output: bool = False
