"""The user's settings for a model's inputs and outputs, checked against the model.

Every mistake is found before anything is imported, and all are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from popc.frontend import messages as onnx
from popc.frontend.annotations import Annotations
from popc.frontend.bound_values import BoundValue, as_array, chosen, converted, element_type
from popc.frontend.budget import ImportLimits
from popc.frontend.declared import DeclaredInput, Dim, OpenDim, OpenDimensionsError, OpenInput
from popc.frontend.load import LoadedModel
from popc.frontend.names import did_you_mean, shown
from popc.frontend.recomputation import RecomputeRequests
from popc.ir import TensorType
from popc_runtime.errors import ModelError, SpokenHint, UsageError
from popc_runtime.format import DEFAULT_LIMITS, Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = [
    "Bindings",
    "ResolvedInputs",
    "TrainingBindings",
    "bound_values",
    "resolve",
]

_LISTED: Final = 12  # names shown when someone asks for one that does not exist


@frozen
class TrainingBindings:
    """The training that a model is imported for, when weights are going to be variables.

    Attributes:
        is_trainable: Whether a weight of this name and type may become a variable.
        trains: Whether the program will train them; if not, only the host and the model itself
            give them new values.
        named: Whether the user has named the weights.
        keep: Tensors that the loss is computed from, and others that must be found by name.
        recompute: What the backward pass is to compute once more, if there is one.
    """

    is_trainable: Callable[[str, TensorType], bool]
    keep: tuple[str, ...] = ()
    named: bool = False
    recompute: RecomputeRequests | None = None
    trains: bool = True


@frozen
class Bindings:
    """The settings that the user fixes about a model before it is compiled.

    Attributes:
        shapes: Shape of an input, by input name.
        dims: Value of a symbolic dimension, by its name in the model.
        values: Inputs that become constants: an array (or what numpy makes one of), a list of
            arrays for a sequence input, ``None`` for an optional input that is empty; or arrays by
            name, of which a tensor takes the one of its own name and a sequence all.
        outputs: The tensors wanted as outputs, by ONNX name.
        anchors: Further tensors wanted as outputs.
        training: Set if weights are going to be variables.
        model_outputs: Whether the model's outputs are wanted if ``outputs`` is empty.
        replicas: How many replicas of the program there will be.
        annotations: What to say of nodes, beside what the model says.
        limits: How much work importing may be.
        bounds: The most that a size which data decides can be, by the name of a tensor.
        outlined: Names or patterns of functions of the model whose calls stay calls.
        states: Outputs, or "append", by names or patterns of the inputs that they go on from run
            to run; see `popc.frontend.states`.
        nchwc_block_size: The channels in a block of filters that onnxruntime has stored in blocks;
            0: as the model tells, or else as this processor has them.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    training: TrainingBindings | None = None
    model_outputs: bool = True
    replicas: int = 1
    annotations: Annotations = field(default_factory=Annotations)
    limits: ImportLimits = field(default_factory=ImportLimits)
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    outlined: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    nchwc_block_size: int = 0

    @property
    def kept(self) -> tuple[str, ...]:
        """Names that are needed without being outputs."""
        return self.training.keep if self.training else ()


@frozen
class ResolvedInputs:
    """Every input of the model is in one of the two.

    Attributes:
        types: Inputs that stay inputs, with their static types, in order of the model.
        values: Inputs that become constants, in the element types that the model declares
            (bfloat16 as float32).
        texts: Inputs of strings, whose type is that of their places in a list of words.
    """

    types: Mapping[str, TensorType]
    values: Mapping[str, BoundValue]
    texts: tuple[str, ...] = ()


def resolve(model: LoadedModel, bindings: Bindings) -> ResolvedInputs:
    """Check ``bindings`` against the model and work out the type of every input.

    Raises:
        UsageError: names do not exist, shapes or values do not fit, dimensions stay open.
        ModelError: inputs have element types that popc does not support.
    """
    return _Resolver(model, bindings).resolve()


def bound_values(model: LoadedModel, values: Mapping[str, Any]) -> dict[str, BoundValue]:
    """``values`` (see `Bindings`) as the model declares them, whatever else is left open.

    Raises:
        UsageError: names do not exist, values do not fit.
    """
    return _Resolver(model, Bindings(values=values)).resolve_values()


class _Resolver:
    """One attempt to make ends meet; collects what is wrong on the way."""

    def __init__(self, model: LoadedModel, bindings: Bindings) -> None:
        self.model = model
        self.bindings = bindings
        self.weights = {info.name: DeclaredInput.of(info) for info in model.proto.graph.input}
        self.inputs = {info.name: self.weights[info.name] for info in model.inputs}
        self.problems: list[str] = []
        self.hints: list[tuple[str, str, str]] = []  # argument, name, value
        self.open: list[OpenInput] = []
        self.symbols: dict[str, tuple[int, str]] = {}  # name -> size, who says so

    def resolve(self) -> ResolvedInputs:
        """All checks in the order in which people would make them."""
        self._check_element_types()
        self._check_names()
        self._take_dims()
        values = self._values()
        for name, shape in self.bindings.shapes.items():
            self._match(name, tuple(shape), f"shape {name}={_joined(shape)}")
        types = {
            input_.name: self._type(input_)
            for input_ in self.inputs.values()
            if input_.name not in values
        }
        self._raise_if_any()
        return ResolvedInputs(types, values, tuple(name for name in types if self._is_text(name)))

    def resolve_values(self) -> dict[str, BoundValue]:
        """The checks that need to know nothing but what is bound."""
        self._check_names()
        values = self._values()
        self._raise_if_any()
        return values

    def _raise_if_any(self) -> None:
        if not self.problems:
            return
        hint = _told(dict.fromkeys(self.hints))
        message = self.problems[0]
        details: tuple[str, ...] = ()
        if len(self.problems) > 1:
            message = f"{len(self.problems)} problems with the inputs and outputs of the model"
            details = tuple(self.problems)
        if len(self.open) == len(self.problems):
            error = OpenDimensionsError(message, details=details, hint=hint)
            error.inputs = tuple(self.open)
            raise error
        raise UsageError(message, details=details, hint=hint)

    # -- names and element types -------------------------------------------------------------------

    def _check_element_types(self) -> None:
        unsupported = []
        for input_ in self.inputs.values():
            if input_.kind == "tensor" and self._is_text(input_.name):
                if input_.name in self.bindings.values:
                    unsupported.append(f"input {input_.name!r}: strings cannot be bound")
                continue
            try:
                element_type(input_.type)
            except ModelError as error:
                unsupported.append(f"input {input_.name!r}: {error.message}")
        if unsupported:
            raise ModelError(
                "inputs have element types that popc does not support", details=tuple(unsupported)
            )

    def _is_text(self, name: str) -> bool:
        type_ = self.inputs[name].type.tensor_type
        return bool(type_.elem_type == onnx.TensorProto.STRING)

    def _check_names(self) -> None:
        for option, names in (("shape", self.bindings.shapes), ("bind", self.bindings.values)):
            known = self.inputs if option == "shape" else self.weights
            for name in names:
                if name not in known:
                    self._unknown(f"{option} {name}", "input", name, self.inputs)
        for name in self.bindings.shapes:
            if name in self.bindings.values:
                self.problems.append(f"shape {name}: the input is bound to a value already")
        bindings = self.bindings
        wanted = [(f"output {name}", name) for name in (*bindings.outputs, *bindings.anchors)]
        wanted += [(f"training: {name}", name) for name in bindings.kept]
        tensors = self._tensor_names() if wanted else {}
        for subject, name in wanted:
            if name not in tensors:
                self._unknown(subject, "tensor", name, tensors)

    def _tensor_names(self) -> dict[str, None]:
        graph = self.model.proto.graph
        names = [*self.model.tensor_names(), *self.inputs]
        names += [tensor.name for tensor in graph.initializer]
        names += [tensor.values.name for tensor in graph.sparse_initializer]
        return dict.fromkeys(names)

    def _unknown(self, subject: str, what: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        guess = did_you_mean(name, names)
        listed = "" if guess or len(names) > _LISTED else f"; it has {_listed(names)}"
        self.problems.append(f"{shown(subject)}: the model has no {what} {name!r}{guess or listed}")

    # -- dimensions --------------------------------------------------------------------------------

    def _take_dims(self) -> None:
        known = dict.fromkeys(
            dim
            for input_ in self.inputs.values()
            for dim in input_.dims or ()
            if isinstance(dim, str)
        )
        for name, size in self.bindings.dims.items():
            if name not in known:
                self._unknown(f"dim {name}", "symbolic dimension", name, known)
            elif size < 0:
                self.problems.append(f"dim {name}={size}: a dimension cannot be negative")
            else:
                self.symbols[name] = (size, f"dim {name}={size}")

    def _match(self, name: str, shape: Sequence[int], source: str) -> None:
        """Compare a shape with the declared one, and learn symbolic dimensions from it."""
        one = self.weights.get(name)
        if one is None or (one.kind != "tensor" and not source.startswith("bind")):
            if one is not None:
                self.problems.append(f"{source}: the input is a {one.kind}, bind its value")
            return
        if any(size < 0 for size in shape):
            self.problems.append(f"{source}: a dimension cannot be negative")
            return
        if one.dims is None:
            return
        if len(shape) != len(one.dims):
            self.problems.append(
                f"{source}: {len(shape)} dimensions, but the model declares {one} "
                f"with {len(one.dims)}"
            )
            return
        for index, (size, dim) in enumerate(zip(shape, one.dims, strict=True)):
            self._match_dim(index, size, dim, f"{source}", one)

    def _match_dim(
        self, index: int, size: int, dim: Dim, source: str, declared: DeclaredInput
    ) -> None:
        if isinstance(dim, int) and size != dim:
            self.problems.append(
                f"{source}: dimension {index} is {size}, but the model fixes it to {dim} "
                f"({declared})"
            )
        if isinstance(dim, str):
            known, reason = self.symbols.setdefault(dim, (size, source))
            if known != size:
                self.problems.append(
                    f"{source}: dimension {index}, {dim!r}, is {size}, but {reason} "
                    f"makes it {known}"
                )

    def _type(self, declared: DeclaredInput) -> TensorType:
        """The static type of an input that is not bound."""
        if declared.kind != "tensor":
            self.problems.append(
                f"input {declared.name!r} is a {declared.kind}: its value must be known when "
                "compiling"
            )
            self.hints.append(("bind", declared.name, "FILE.npz"))
            return TensorType(DType.BOOL, ())
        is_text = self._is_text(declared.name)
        dtype = DType.INT64 if is_text else element_type(declared.type)
        given = self.bindings.shapes.get(declared.name)
        if given is not None:
            return self._of_sane_size(declared.name, TensorType(dtype, tuple(given)))
        if declared.dims is None:
            self.problems.append(f"input {declared.name!r} has no shape in the model")
            self.hints.append(("shape", declared.name, "DIMENSIONS"))
            return TensorType(dtype, ())
        return self._of_sane_size(
            declared.name, TensorType(dtype, self._sizes(declared, declared.dims))
        )

    def _of_sane_size(self, name: str, type_: TensorType) -> TensorType:
        limit = DEFAULT_LIMITS.memory_bytes
        problem = type_.size_problem()
        if problem:
            self.problems.append(f"input {name!r} {problem}")
        elif type_.nbytes > limit:
            self.problems.append(
                f"input {name!r}, {type_}, has {type_.nbytes:,} bytes, but no more than {limit:,} "
                f"can be addressed"
            )
        return type_

    def _sizes(self, declared: DeclaredInput, dims: tuple[Dim, ...]) -> tuple[int, ...]:
        sizes = [
            self.symbols[dim][0] if isinstance(dim, str) and dim in self.symbols else dim
            for dim in dims
        ]
        if all(isinstance(size, int) for size in sizes):
            return tuple(size for size in sizes if isinstance(size, int))
        names = [repr(size) if size else "?" for size in sizes if not isinstance(size, int)]
        self.problems.append(
            f"input {declared.name!r}, {declared}, leaves dimensions open: {', '.join(names)}"
        )
        open_ = tuple(
            size
            if isinstance(size, int)
            else OpenDim(size)
            if size
            else OpenDim("", declared.name, axis)
            for axis, size in enumerate(sizes)
        )
        self.open.append(OpenInput(declared.name, open_))
        if None in sizes:
            words = [f"DIM{axis}" if size is None else size for axis, size in enumerate(sizes)]
            self.hints.append(("shape", declared.name, _joined(words)))
        else:
            names = [size for size in sizes if isinstance(size, str)]
            self.hints.extend(("dim", name, "SIZE") for name in names)
        return ()

    # -- values ------------------------------------------------------------------------------------

    def _values(self) -> dict[str, BoundValue]:
        return {name: self._value(name) for name in self.bindings.values if name in self.weights}

    def _value(self, name: str) -> BoundValue:
        one = self.weights[name]
        try:
            value = chosen(name, self.bindings.values[name], one.type)
            if one.kind == "tensor" and value is not None:
                value = _as_declared_scalar(as_array(value), one.dims)
                self._match(name, value.shape, f"bind {name}")
            return converted(value, one.type)
        except ValueError as error:
            self.problems.append(f"bind {name}: {error}")
            return None


def _as_declared_scalar(value: Array, dims: tuple[Dim, ...] | None) -> Array:
    """A scalar with as many dimensions of size 1 as the model declares."""
    if (
        value.ndim
        or not dims
        or any(dim not in (1, None) and not isinstance(dim, str) for dim in dims)
    ):
        return value
    return value.reshape((1,) * len(dims))


def _told(hints: Iterable[tuple[str, str, str]]) -> SpokenHint | str:
    """The values to give, as arguments in Python and on the command line."""
    rows = list(hints)
    python = ", ".join(f"{argument} {name}={value}" for argument, name, value in rows)
    import shlex

    shell = " ".join(f"--{kind} {shlex.quote(f'{name}={value}')}" for kind, name, value in rows)
    return SpokenHint(f"give {python}", shell) if rows else ""


def _joined(sizes: Iterable[object]) -> str:
    return ",".join(map(str, sizes))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "none"
