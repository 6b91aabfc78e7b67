"""PopART's patterns: which are on, and what cannot be switched off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from popc.popart.calls import BOOL, Mismatch, constructed, native
from popc.popart.errors import popart_exception
from popc.popart.option_enums import PatternsLevel

__all__ = ["PATTERNS", "Patterns"]

# By PopART's names: those that are on by default, and those that a session cannot do without.
_MANDATORY: Final = (
    *("AbsGradOp", "AllReduceToIdentity", "Atan2Arg0GradOp", "Atan2Arg1GradOp", "ConvDataGrad"),
    *("ConvFlipWeightsGradOp", "ConvTranspose", "CosGradOp", "CoshOp", "DivArg0GradOp"),
    *("DivArg1GradOp", "ExpGradOp", "Expm1GradOp", "FmodArg0GradOp", "Log1pGradOp", "LogGradOp"),
    *("LoopScanOut", "MatMulLhsGradOp", "MatMulOp", "MatMulRhsGradOp", "MulArgGradOp"),
    *("PowArg0GradOp", "PowArg1GradOp", "RandomNormalLikeOpPattern", "RandomUniformLikeOpPattern"),
    *("ReciprocalGradOp", "ScanToLoop", "SinGradOp", "SqrtGradOp", "SubtractArg1GradOp"),
    "ZerosLikeOpPattern",
)
_DEFAULT: Final = (
    *("ConvFlipWeightsDoubleFlip", "DecomposeBinaryConstScalar", "ExpandCast", "InitAccumulate"),
    *("LambSerialisedWeight", "NegativeOneScale", "NlllWithSoftmaxGradDirect", "OpToIdentity"),
    *("PackedDataBlock", "PadSum", "PostNRepl", "PreUniRepl", "RemoveUnnecessaryLossGradCast"),
    *("SoftmaxGradDirect", "SplitGradOpToConcat", "SplitOp", "SumToAdd"),
    *("TransposeToIdentityOrReshapePattern", "UpsampleToResize", "ViewSimplifyPattern"),
)
_OFF: Final = ("LSTMOp", "SlicePattern", "SplitGather", "TiedGather", "TiedGatherAccumulate")
# Further names of patterns that optimizers and pipelines run by themselves.
_APART: Final = (
    *("AdamDecompose", "AdaptiveDecompose", "ContiguateIpuCopyIndicesPattern", "SGD0Decompose"),
    *("SGD1Decompose", "SGD2Decompose"),
)
_ALIASES: Final = {"Slice2SliceSubsample": "SlicePattern"}
PATTERNS: Final = (*_MANDATORY, *_DEFAULT, *_OFF, *_APART)

_INPLACE: Final = "InPlace"
_PRIORITIES: Final = "UpdateInplacePrioritiesForIpu"
# Properties of an object, and the patterns that they switch.
_PROPERTIES: Final = {
    "PreUniRepl": "PreUniRepl",
    "PostNRepl": "PostNRepl",
    "SoftMaxGradDirect": "SoftmaxGradDirect",
    "NlllWithSoftMaxGradDirect": "NlllWithSoftmaxGradDirect",
    "OpToIdentity": "OpToIdentity",
    "SubtractArg1GradOp": "SubtractArg1GradOp",
    "MulArgGradOp": "MulArgGradOp",
    "MatMulOp": "MatMulOp",
    "MatMulLhsGradOp": "MatMulLhsGradOp",
    "MatMulRhsGradOp": "MatMulRhsGradOp",
    "InPlace": _INPLACE,
}


class Patterns:
    """Patterns that are on or off.

    Forms: ``()``, which is the default level, ``(level)``, ``(patterns)``, a list of those that are
    on.  Eleven of them are properties too: ``PreUniRepl``, ``InPlace`` and others.

    Raises:
        popart_exception: there is no pattern of a name.
    """

    __slots__ = ("_asserts", "_inplace", "_on", "_priorities")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._on: dict[str, bool] = {}
        self._inplace = self._priorities = False
        self._asserts = True
        forms = (Patterns._default, Patterns._of_level, Patterns._of_names)
        constructed(self, forms, args, kwargs)

    def _default(self) -> None:
        self._of_level(PatternsLevel.Default)

    def _of_level(self, level: PatternsLevel) -> None:
        every = level is PatternsLevel.All
        usual = every or level is PatternsLevel.Default
        if level is not PatternsLevel.NoPatterns:
            self._on.update(dict.fromkeys(_MANDATORY, True))
        if usual:
            self._on.update(dict.fromkeys((*_DEFAULT, *_APART), True))
        if every:
            self._on.update(dict.fromkeys(_OFF, True))
        self._inplace = usual

    def _of_names(self, patterns: Sequence[str]) -> None:
        for name in patterns:
            if name in (_INPLACE, _PRIORITIES):
                self._switch(name, on=True)
                continue
            if _ALIASES.get(name, name) not in PATTERNS:
                advice = ", did you mean InPlace?" if name.lower() == "inplace" else ""
                raise popart_exception(f"Unknown pattern {name}{advice}")
            self._on[_ALIASES.get(name, name)] = True

    def _switch(self, name: str, *, on: bool) -> None:
        if name == _INPLACE:
            self._inplace = on
        elif name == _PRIORITIES:
            self._priorities = on
        else:
            if not on and name in _MANDATORY:
                raise popart_exception(f"Pattern '{name}' is mandatory and cannot be disabled")
            self._on[name] = on

    @native
    def enablePattern(self, patternName: str, enabled: bool, /) -> Patterns:
        """Switch a pattern; a copy of the patterns as they are then.

        Raises:
            popart_exception: there is no such pattern, or it cannot be switched off.
        """
        name = _ALIASES.get(patternName, patternName)
        if name not in (*PATTERNS, _INPLACE, _PRIORITIES):
            raise popart_exception(f"Unknown pattern {patternName}.")
        self._switch(name, on=enabled)
        return self.copied()

    @native
    def isPatternEnabled(self, patternName: str, /) -> bool:
        """True if a pattern is on.

        Raises:
            popart_exception: there is no such pattern.
        """
        name = _ALIASES.get(patternName, patternName)
        if name not in PATTERNS:
            raise popart_exception(f"Unknown pattern {patternName}.")
        return self._on.get(name, False)

    @native
    def enableRuntimeAsserts(self, on: bool, /) -> Patterns:
        """True if a session refuses patterns without the mandatory ones."""
        self._asserts = on
        return self

    def copied(self) -> Patterns:
        """Patterns of their own that are on and off as these are."""
        made = Patterns([])
        made._on = dict(self._on)
        made._inplace, made._priorities = self._inplace, self._priorities
        made._asserts = self._asserts
        return made

    def disabled(self) -> list[str]:
        """The patterns that are off, sorted; InPlace is one of them."""
        off = [name for name in (*_DEFAULT, *_OFF, *_MANDATORY) if not self._on.get(name, False)]
        return sorted([*off, *([] if self._inplace else [_INPLACE])])

    def require_mandatory(self) -> None:
        """Check that what a session cannot do without is on.

        Raises:
            popart_exception: it is not, and runtime asserts are on.
        """
        missing = [name for name in _MANDATORY if not self._on.get(name, False)]
        if missing and self._asserts:
            raise popart_exception(f"Pattern '{missing[0]}' must be enabled")

    def __getattr__(self, name: str) -> bool:
        if name not in _PROPERTIES:
            raise AttributeError(f"'Patterns' object has no attribute {name!r}")
        pattern = _PROPERTIES[name]
        return self._inplace if pattern == _INPLACE else self._on.get(pattern, False)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__slots__:
            object.__setattr__(self, name, value)
        elif name not in _PROPERTIES:
            raise AttributeError(f"'Patterns' object has no attribute {name!r}")
        else:
            try:
                on: bool = BOOL.convert(value)
            except Mismatch:
                raise TypeError(f"{name}: incompatible types: {value!r} is no bool") from None
            self._switch(_PROPERTIES[name], on=on)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_PROPERTIES})

    def __repr__(self) -> str:
        return "".join(f"{name} " for name in self._on)
