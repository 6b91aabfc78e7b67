"""Descriptions of the tensors that live on the device, and of their training."""

from __future__ import annotations

from enum import StrEnum
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.format.limits import MAX_DIMENSION, MAX_REPLICAS
from popc_runtime.format.serialization import Fields, read_shape
from popc_runtime.ground.frozen import frozen

__all__ = [
    "HyperParameter",
    "TrainingSpec",
    "VariableRole",
    "VariableSpec",
    "read_training",
    "read_variable",
]


class VariableRole(StrEnum):
    """The role of a variable for the host."""

    WEIGHT = "weight"  # a parameter of the model, or a running statistic
    OPTIMIZER_STATE = "optimizer_state"  # moments, step counters
    HYPER_PARAMETER = "hyper_parameter"  # a scalar that the host may change between runs


@frozen
class VariableSpec:
    """A tensor that lives on the device from run to run, contiguous in the state region.

    What is kept ``off_chip`` lies in streaming memory instead.

    ``offset`` is in bytes.  ``rows`` is empty if all replicas hold the same values.  Otherwise the
    host's array has one more dimension, the first, and ``rows`` says which row each replica holds.
    If ``whole`` is not empty, rows are parts of a flat array, padded at the end, that the host sees
    in this shape.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: VariableRole
    offset: int
    rows: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    off_chip: bool = False

    @property
    def nbytes(self) -> int:
        """Its size, on one replica."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def parts(self) -> int:
        """The number of different rows; 0 if all replicas have the same values."""
        return max(self.rows, default=-1) + 1

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Its shape as the host reads and writes it."""
        if self.whole:
            return self.whole
        return (self.parts, *self.shape) if self.rows else self.shape

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.host_shape))}]"


@frozen
class HyperParameter:
    """A number that the optimizer uses.

    Attributes:
        name: What it is: "learning_rate", "momentum", "loss_scaling", ...
        group: The tensors that it holds for: "default", or a list of names and patterns.
        value: Its value when the archive was compiled.
        variable: The variable that holds it; "" if it is a constant of the program.
    """

    name: str
    group: str
    value: float
    variable: str = ""


@frozen
class TrainingSpec:
    """The way in which the program trains.

    Attributes:
        optimizer: The type of the optimizer: "sgd", "adam", ...
        loss: The output that is the loss.
        clip_norms: Of each clipped group of gradients the norm and the tensors, as text.
        hyper_parameters: The numbers that the optimizer uses.
        settings: The optimizer as it was given to the compiler, as JSON.
    """

    optimizer: str
    loss: str
    settings: str
    clip_norms: tuple[str, ...] = ()
    hyper_parameters: tuple[HyperParameter, ...] = ()


def read_variable(source: Fields) -> VariableSpec:
    """Read one variable of a manifest."""
    return VariableSpec(
        name=source.text("name"),
        dtype=source.choice("dtype", DType),
        shape=read_shape(source),
        role=source.choice("role", VariableRole),
        offset=source.integer("offset", high=MAX_DIMENSION),
        rows=source.integers("rows", high=MAX_REPLICAS - 1),
        whole=source.integers("whole", high=MAX_DIMENSION),
        off_chip=source.any("off_chip") is not None and source.flag("off_chip"),
    )


def read_training(source: Fields) -> TrainingSpec | None:
    """Read a manifest's field ``training``, which may be absent."""
    if source.any("training") is None:
        return None
    training = source.record("training")
    return TrainingSpec(
        optimizer=training.text("optimizer"),
        loss=training.text("loss"),
        settings=training.text("settings"),
        clip_norms=training.texts("clip_norms"),
        hyper_parameters=training.items("hyper_parameters", _read_hyper_parameter),
    )


def _read_hyper_parameter(source: Fields) -> HyperParameter:
    return HyperParameter(
        source.text("name"), source.text("group"), source.number("value"), source.text("variable")
    )
