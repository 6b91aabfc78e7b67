"""The steps of a FusedElementwise: functions of single elements, one after another.

They are attributes of the instruction, so that an archive stays plain data: ``steps`` are opcodes,
``dtypes`` the element types of their results, ``arities`` how many operands each has, ``operands``
all of these in a row.  An operand is a number: inputs of the instruction come first, then results
of steps.  An attribute of step 2 is called ``step2_alpha``.  The last step gives the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Attribute, Attributes
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = [
    "MOST_INPUTS",
    "MOST_STEPS",
    "STEP_OPCODES",
    "FusedStep",
    "last_uses",
    "steps_of",
    "written",
]

# Bounds for what an archive may ask for; the native kernel has some for what steps come to.
MOST_INPUTS: Final = 12
MOST_STEPS: Final = 24

STEP_OPCODES: Final = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atan2", "Atanh"),
        *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil"),
        *("Celu", "CeluGrad", "Clip", "ClipGrad", "Cos", "Cosh", "Div", "Elu", "EluGrad", "Equal"),
        *("Erf", "ErfGrad", "Exp", "Expm1", "FakeQuantize", "FakeQuantizeGrad", "Floor", "Gelu"),
        *("GeluGrad", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSigmoidGrad", "HardSwish"),
        *("HardSwishGrad", "IsNaN", "LeakyRelu", "LeakyReluGrad", "Less", "LessOrEqual"),
        *("Log", "Log1p", "Max", "Min", "Mish", "MishGrad", "Mod", "Mul", "Neg", "Not", "Or"),
        *("PRelu", "Pow", "Reciprocal", "Relu", "ReluGrad", "Round", "ScaledAdd", "Selu"),
        *("SeluGrad", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh"),
        *("Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "Square", "Sub", "Sum"),
        *("Swish", "SwishGrad", "Tan", "Tanh", "TanhGrad", "ThresholdedRelu"),
        *("ThresholdedReluGrad", "Where", "Xor"),
    )
)


@frozen
class FusedStep:
    """One function of single elements.

    Attributes:
        opcode: One of `STEP_OPCODES`.
        operands: Numbers of inputs, and of steps behind them.
        dtype: The element type of the result, which has the shape of the last one.
        attributes: The step's own.
    """

    opcode: str
    operands: tuple[int, ...]
    dtype: DType
    attributes: Attributes


def steps_of(attributes: Attributes, inputs: int) -> tuple[FusedStep, ...]:
    """The steps of an instruction with ``inputs`` operands.

    Raises:
        ValueError: they are not what this file says.
    """
    opcodes, names = _texts(attributes, "steps"), _texts(attributes, "dtypes")
    arities, operands = _numbers(attributes, "arities"), _numbers(attributes, "operands")
    if not 0 < len(opcodes) <= MOST_STEPS or not 0 < inputs <= MOST_INPUTS:
        raise ValueError(
            f"{len(opcodes)} steps on {inputs} inputs: at most {MOST_STEPS} and {MOST_INPUTS}"
        )
    ends = [0, *accumulate(arities)]
    if not len(opcodes) == len(names) == len(arities) or ends[-1] != len(operands):
        raise ValueError("steps, dtypes, arities and operands do not belong together")
    steps: list[FusedStep] = []
    parts = zip(opcodes, names, pairwise(ends), strict=True)
    for number, (opcode, name, (begin, end)) in enumerate(parts):
        reads = operands[begin:end]
        if opcode not in STEP_OPCODES or not reads:
            raise ValueError(f"{opcode!r} of {len(reads)} operands is not a step")
        if not all(0 <= index < inputs + number for index in reads):
            raise ValueError(f"step {number} reads {reads}, but there are {inputs + number} values")
        prefix = f"step{number}_"
        own = {
            key.removeprefix(prefix): value
            for key, value in attributes.items()
            if key.startswith(prefix)
        }
        steps.append(FusedStep(opcode, reads, DType(name), own))
    return tuple(steps)


def written(steps: Sequence[FusedStep]) -> dict[str, Attribute]:
    """The attributes that `steps_of` reads."""
    attributes: dict[str, Attribute] = {
        "steps": tuple(step.opcode for step in steps),
        "dtypes": tuple(step.dtype.value for step in steps),
        "arities": tuple(len(step.operands) for step in steps),
        "operands": tuple(index for step in steps for index in step.operands),
    }
    for number, step in enumerate(steps):
        attributes |= {f"step{number}_{name}": value for name, value in step.attributes.items()}
    return attributes


def last_uses(reads: Iterator[Sequence[int]]) -> dict[int, int]:
    """For each value that is read, the number of the step that does so last."""
    return {index: number for number, operands in enumerate(reads) for index in operands}


def _texts(attributes: Attributes, name: str) -> tuple[str, ...]:
    value = attributes.get(name)
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} must be a list of strings, not {value!r}")
    return tuple(str(item) for item in value)


def _numbers(attributes: Attributes, name: str) -> tuple[int, ...]:
    value = attributes.get(name)
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise ValueError(f"attribute {name!r} must be a list of integers, not {value!r}")
    if name == "arities" and any(int(item) < 0 for item in value):
        raise ValueError("an arity is negative")
    return tuple(int(item) for item in value)
