"""PopART's patterns: what does the same here."""

from __future__ import annotations

from typing import Final

__all__ = ["BUILT_IN", "ELSEWHERE", "PATTERNS", "names_meant", "why_no_switch"]

# By PopART's names, the passes and local rules that do what the pattern does.
PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "ConvFlipWeightsDoubleFlip": ("join_slices",),
    "ExpandCast": ("expand_casts",),
    "NegativeOneScale": ("negative_ones",),
    "NlllWithSoftmaxGradDirect": ("fuse_loss_gradients",),
    "OpToIdentity": ("drop_identities", "drop_neutral_elements"),
    "PadSum": ("add_pads",),
    "PostNRepl": ("drop_identities", "drop_neutral_elements"),
    "PreUniRepl": ("drop_identities", "drop_neutral_elements"),
    "RemoveUnnecessaryLossGradCast": ("join_casts",),
    "SlicePattern": ("split_slices",),
    "Slice2SliceSubsample": ("split_slices",),
    "SoftmaxGradDirect": ("fuse_loss_gradients",),
    "SplitGather": ("split_gathers",),
    "SumToAdd": ("sums_of_two",),
    "TiedGatherAccumulate": ("tied_gradients",),
    "TransposeToIdentityOrReshapePattern": ("trivial_transposes", "join_transposes"),
    "ViewSimplifyPattern": ("join_reshapes",),
}

_IMPORTED: Final = "the import of a model does it"
_GRADIENT: Final = "the rule for the gradient of the op does it"
_UPDATE: Final = "the rules of the optimizers do it"
_KERNEL: Final = "the kernel takes the op as it is"

# By PopART's names, what makes the pattern needless: it is in force, and has no switch.
BUILT_IN: Final[dict[str, str]] = {
    "AbsGradOp": _GRADIENT,
    "AdamDecompose": _UPDATE,
    "AdaptiveDecompose": _UPDATE,
    "AllReduceToIdentity": "collectives of one replica are never built",
    "Atan2Arg0GradOp": _GRADIENT,
    "Atan2Arg1GradOp": _GRADIENT,
    "ContiguateIpuCopyIndicesPattern": "copies between chips are built for neighbouring stages",
    "ConvDataGrad": _GRADIENT,
    "ConvFlipWeightsGradOp": "the gradients of convolutions are ops of their own: no weight flips",
    "ConvTranspose": _KERNEL,
    "CosGradOp": _GRADIENT,
    "CoshOp": _KERNEL,
    "DecomposeBinaryConstScalar": _IMPORTED,
    "DivArg0GradOp": _GRADIENT,
    "DivArg1GradOp": _GRADIENT,
    "ExpGradOp": _GRADIENT,
    "Expm1GradOp": _GRADIENT,
    "FmodArg0GradOp": _GRADIENT,
    "InitAccumulate": "an accumulator has one layout",
    "LSTMOp": _IMPORTED,
    "LambSerialisedWeight": "a weight whose products are cut stays whole, and so does its norm",
    "Log1pGradOp": _GRADIENT,
    "LogGradOp": _GRADIENT,
    "LoopScanOut": _IMPORTED,
    "MatMulLhsGradOp": _GRADIENT,
    "MatMulOp": _KERNEL,
    "MatMulRhsGradOp": _GRADIENT,
    "MulArgGradOp": _GRADIENT,
    "PackedDataBlock": _IMPORTED,
    "PowArg0GradOp": _GRADIENT,
    "PowArg1GradOp": _GRADIENT,
    "RandomNormalLikeOpPattern": _IMPORTED,
    "RandomUniformLikeOpPattern": _IMPORTED,
    "ReciprocalGradOp": _GRADIENT,
    "SGD0Decompose": _UPDATE,
    "SGD1Decompose": _UPDATE,
    "SGD2Decompose": _UPDATE,
    "ScanToLoop": _IMPORTED,
    "SinGradOp": _GRADIENT,
    "SplitGradOpToConcat": _GRADIENT,
    "SplitOp": "a Split is a view of its operand",
    "SqrtGradOp": _GRADIENT,
    "SubtractArg1GradOp": _GRADIENT,
    "TiedGather": "a transposed table is a view: the lookup and the product read the same memory",
    "UpsampleToResize": _IMPORTED,
    "ZerosLikeOpPattern": _IMPORTED,
}

# What other settings decide.
ELSEWHERE: Final = {
    "InPlace": "the option enable_inplace decides it",
    "Inplace": "the option enable_inplace decides it",
    "UpdateInplacePrioritiesForIpu": "the annotation inplace_op_priorities decides it",
}


def names_meant(name: str) -> tuple[str, ...]:
    """Our names for a pattern of PopART's; for any other name, that name."""
    return PATTERNS.get(name, (name,))


def why_no_switch(name: str) -> str:
    """The reason why a pattern of PopART's cannot be switched off; "" if it can, or is none."""
    return ELSEWHERE.get(name) or BUILT_IN.get(name, "")
