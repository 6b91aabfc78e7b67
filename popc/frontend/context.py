"""The state of importing a whole model, which the importers of all its graphs share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field

from popc.frontend import messages as onnx
from popc.frontend.budget import ImportBudget
from popc.frontend.functions import FunctionTable
from popc.frontend.known import KnownValues
from popc.frontend.problems import Problems
from popc.frontend.recomputation import RecomputeRequests
from popc.frontend.sizes import SizeTable
from popc.ir import Tensor, TensorType
from popc_runtime.ground.frozen import mutable

__all__ = ["ImportContext", "never"]


def never(name: str, type_: TensorType) -> bool:
    """No initializer is a variable."""
    del name, type_
    return False


@mutable
class ImportContext:
    """The state of importing a whole model: functions, data folder, problems, known values.

    Attributes:
        sizes: What is known about sizes that data decides.
        budget: Counts the work that there has been.
        is_variable: Which initializers become variables, by name and type.
        trains, replicas: Whether the model will be trained, and how many replicas will run it.
        written: Names of variables that the model itself may give new values.
        recompute: What the backward pass of training is to compute once more.
        outlined: Names or patterns of the model's functions whose calls stay calls.
        variables: Initializers that are variables, with these, by the identity of the message.
        caches: Variables that hold rows of former runs: the axis of these, and how many a run adds.
        narrow_sums: Nodes that ask for sums in half of results that are wider.
    """

    functions: FunctionTable
    budget: ImportBudget
    known: KnownValues
    sizes: SizeTable
    base_dir: str = ""
    problems: Problems = field(default_factory=Problems)
    is_variable: Callable[[str, TensorType], bool] = never
    trains: bool = False
    written: Collection[str] = ()
    replicas: int = 1
    recompute: RecomputeRequests | None = None
    outlined: tuple[str, ...] = ()
    variables: dict[int, tuple[onnx.TensorProto, Tensor]] = field(
        default_factory=dict["int", "tuple[onnx.TensorProto, Tensor]"]
    )
    caches: dict[Tensor, tuple[int, int]] = field(default_factory=dict["Tensor", "tuple[int, int]"])
    narrow_sums: list[str] = field(default_factory=list[str])
