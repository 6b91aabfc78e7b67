"""The builder that programs use: opsets by attribute, everything else from the native builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from popc.popart.builder_core import DEFAULT_ONNX_OPSET, _BuilderCore
from popc.popart.opsets import (
    OPSETS,
    AiOnnxOpset6,
    AiOnnxOpset7,
    AiOnnxOpset8,
    AiOnnxOpset9,
    AiOnnxOpset10,
    AiOnnxOpset11,
)
from popc.popart.opsets import AiGraphcoreOpset1 as _NativeGraphcore

__all__ = [
    "AiGraphcore",
    "AiGraphcoreOpset1",
    "AiOnnx",
    "AiOnnx6",
    "AiOnnx7",
    "AiOnnx8",
    "AiOnnx9",
    "AiOnnx10",
    "AiOnnx11",
    "AiOnnxMl",
    "Builder",
    "Opset",
]

_ONNX: Final = "aiOnnx"
_BY_OPSET: Final = "aiOnnxOpset"


class Opset:
    """Operators of one version of a domain.

    Attributes:
        version: The version.
    """

    version: Any

    def __init__(self, builder: _BuilderCore, version: Any) -> None:
        self._builder = builder
        self.version = version


class AiOnnx(Opset):
    """ai.onnx; methods are those of the native class of its version, which is a text here."""

    def __init__(self, builder: _BuilderCore, version: str = str(DEFAULT_ONNX_OPSET)) -> None:
        super().__init__(builder, version)
        self._impl = OPSETS[int(version)](builder)

    def __getattr__(self, name: str) -> Any:
        if name == "_impl":
            raise AttributeError(name)
        return getattr(self._impl, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._impl)})

    def __str__(self) -> str:
        return type(self).__name__


class AiOnnx6(AiOnnx):
    """ai.onnx, opset 6."""

    def __init__(self, builder: _BuilderCore, version: str = "6") -> None:
        super().__init__(builder, version)


class AiOnnx7(AiOnnx6):
    """ai.onnx, opset 7."""

    def __init__(self, builder: _BuilderCore, version: str = "7") -> None:
        super().__init__(builder, version)


class AiOnnx8(AiOnnx7):
    """ai.onnx, opset 8."""

    def __init__(self, builder: _BuilderCore, version: str = "8") -> None:
        super().__init__(builder, version)


class AiOnnx9(AiOnnx8):
    """ai.onnx, opset 9."""

    def __init__(self, builder: _BuilderCore, version: str = "9") -> None:
        super().__init__(builder, version)


class AiOnnx10(AiOnnx9):
    """ai.onnx, opset 10."""

    def __init__(self, builder: _BuilderCore, version: str = "10") -> None:
        super().__init__(builder, version)


class AiOnnx11(AiOnnx10):
    """ai.onnx, opset 11."""

    def __init__(self, builder: _BuilderCore, version: str = "11") -> None:
        super().__init__(builder, version)


class AiOnnxMl(Opset):
    """ai.onnx.ml, version 1, of which there are no operators.

    Raises:
        ValueError: the version is another one.
    """

    def __init__(self, builder: _BuilderCore, version: int) -> None:
        super().__init__(builder, version)
        if version != 1:
            raise ValueError(f"Unsupported or unrecognized ai.onnx.ml version: {version}")


class AiGraphcore(Opset):
    """ai.graphcore, version 1; methods are those of the native class.

    Raises:
        ValueError: the version is another one.
    """

    def __init__(self, builder: _BuilderCore, version: int) -> None:
        super().__init__(builder, version)
        if version != 1:
            raise ValueError(f"Unsupported or unrecognized ai.graphcore version: {version}")
        self._impl = _NativeGraphcore(builder)

    def __getattr__(self, name: str) -> Any:
        if name == "_impl":
            raise AttributeError(name)
        return getattr(self._impl, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._impl)})


class AiGraphcoreOpset1(AiGraphcore):
    """ai.graphcore, version 1."""

    def __init__(self, builder: _BuilderCore, version: int = 1) -> None:
        super().__init__(builder, version)


_WRAPPERS: Final[dict[int, type[AiOnnx]]] = {
    6: AiOnnx6,
    7: AiOnnx7,
    8: AiOnnx8,
    9: AiOnnx9,
    10: AiOnnx10,
    11: AiOnnx11,
}


class Builder:
    """A model, built op by op.

    ``aiOnnx`` and ``aiOnnxOpset6`` to ``aiOnnxOpset11`` add operators of ai.onnx; the first of them
    that is used settles the version, unless ``opsets`` did.  ``aiGraphcore`` adds operators of
    ai.graphcore.  Everything else is a method of the native builder.

    Args:
        modelProtoOrFilename: A model to go on from: its bytes, or the name of a file.
        opsets: Versions by domain, "ai.onnx" and "ai.graphcore".
        builderCore: A native builder to wrap.

    Raises:
        KeyError: ``opsets`` leaves out a domain, or names a version that does not exist.
        ValueError: ai.graphcore is to be of a version other than 1.
        RuntimeError: ONNX's checker refuses the model.
        popart_exception: there is no such model, or its opset is not supported.
    """

    aiOnnx: AiOnnx
    aiOnnxOpset6: AiOnnx6
    aiOnnxOpset7: AiOnnx7
    aiOnnxOpset8: AiOnnx8
    aiOnnxOpset9: AiOnnx9
    aiOnnxOpset10: AiOnnx10
    aiOnnxOpset11: AiOnnx11

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: _BuilderCore | None = None,
    ) -> None:
        self._impl = _BuilderCore(modelProtoOrFilename) if builderCore is None else builderCore
        self._version: int | None = None
        self._above: Builder | None = None
        graphcore = 1
        if opsets is not None:
            version, graphcore = opsets["ai.onnx"], opsets["ai.graphcore"]
            if version not in _WRAPPERS:
                raise KeyError(f"{_BY_OPSET}{version}")
            self._version = version
        self._wrappers = {version: made(self._impl) for version, made in _WRAPPERS.items()}
        self.aiGraphcore = AiGraphcore(self._impl, graphcore)
        self.aiGraphcoreOpset1 = AiGraphcoreOpset1(self._impl, 1)

    def __getattr__(self, name: str) -> Any:
        if name == "_impl":
            raise AttributeError(name)
        if name.startswith(_ONNX):
            return self._opset(name)
        return getattr(self._impl, name)

    def __dir__(self) -> list[str]:
        opsets = [_ONNX, *(f"{_BY_OPSET}{version}" for version in _WRAPPERS)]
        return sorted({*super().__dir__(), *dir(self._impl), *opsets})

    def _opset(self, name: str) -> AiOnnx:
        """The operators of the chosen version, or of the one that ``name`` chooses.

        Raises:
            KeyError: there is no such version.
            RuntimeError: another one has been chosen.
        """
        if name == _ONNX:
            version = self._version or self._default_version()
        else:
            number = name.removeprefix(_BY_OPSET)
            if not number.isdecimal() or int(number) not in _WRAPPERS:
                raise KeyError(name)
            version = int(number)
        if self._version not in (None, version):
            raise RuntimeError(
                f"Invalid opset '{name}' selected. Opset for domain ai.onnx already defined as "
                f"{self._version}"
            )
        self._version = version
        return self._wrappers[version]

    def _default_version(self) -> int:
        """The default version; of a subgraph, that of the builder around it."""
        if self._above is None:
            return DEFAULT_ONNX_OPSET
        return self._above._version or self._above._default_version()

    def aiOnnxOpsetVersion(self, version: int) -> None:
        """Check that a version of ai.onnx can be used.

        Raises:
            ValueError: it cannot.
        """
        if version not in _WRAPPERS:
            raise ValueError(f"Unsupported or unrecognized ai.onnx version: {version}")

    def createSubgraphBuilder(self) -> Builder:
        """A builder of a subgraph, which may read the tensors of this one."""
        child = Builder(builderCore=self._impl._createSubgraphBuilder())
        child._above = self
        return child

    def reshape_const(
        self, aiOnnx: AiOnnx, args: Sequence[str], shape: Sequence[int], debugContext: str = ""
    ) -> str:
        """Add a Reshape to a constant shape; the name of its result."""
        sizes = np.array(shape, dtype=np.int64)
        constant = aiOnnx.constant(sizes, f"{debugContext}_const")
        return str(aiOnnx.reshape([args[0], constant], debugContext))


# Programs ask which opsets there are by the annotation; whoever reads this needs a usable type.
Builder.__getattr__.__annotations__["return"] = (
    AiOnnxOpset6 | AiOnnxOpset7 | AiOnnxOpset8 | AiOnnxOpset9 | AiOnnxOpset10 | AiOnnxOpset11
)
