"""Small models on which passes fire.

Models are in the text form of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import onnx
from onnx import parser

from popc.transforms.base import Pass
from popc.transforms.common_subexpressions import CommonSubexpressions
from popc.transforms.constant_folding import ConstantFolding
from popc.transforms.dead_code import DeadCode
from popc.transforms.fold_batch_norm import FoldBatchNorm
from popc.transforms.fold_channel_ops import FoldChannelOps
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc.transforms.fuse_elementwise import FuseElementwise
from popc.transforms.fuse_epilogues import FuseEpilogues
from popc.transforms.fuse_quantization import FuseQuantization
from popc.transforms.hoist_invariants import HoistInvariants
from popc.transforms.hoist_row_products import HoistRowProducts
from popc.transforms.integer_products import IntegerProducts
from popc.transforms.invariant_states import InvariantStates
from popc.transforms.recognise_activations import RecogniseActivations
from popc.transforms.recognise_attention import RecogniseAttention
from popc.transforms.recognise_layer_norm import RecogniseLayerNorm
from popc.transforms.simplify import Simplify
from popc.transforms.subgraph_outputs import SubgraphOutputs
from tests.transforms.bodies import (
    MATRIX,
    NORM_PARAMETERS,
    STATES,
    attention,
    chain,
    conv,
    gelu,
    hard,
    loop,
    norm,
    quantised,
    rows,
    tanh_gelu,
    transposed,
)

__all__ = ["FIRING", "Case"]

_HEADER: Final = '<ir_version: 10, opset_import: ["" : 20]>\n'


@dataclass(frozen=True)
class Case:
    """A pass and a model.

    Attributes:
        body: The model, everything behind the header.
        first: What runs before, for patterns that the importer does not produce.
        unread: Outputs that are dropped after the import, so that their ops are dead.
    """

    name: str
    make: Callable[[], Pass]
    body: str
    first: tuple[Pass, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def model(self) -> onnx.ModelProto:
        return parser.parse_model(_HEADER + self.body)


def _case(
    name: str,
    make: Callable[[], Pass],
    body: str,
    *,
    first: tuple[Pass, ...] = (),
    unread: tuple[str, ...] = (),
) -> Case:
    return Case(name, make, body, first, unread)


def _folding() -> Pass:
    return ConstantFolding(growth_limit=0)


FIRING: Final = (
    _case(
        "dead_code",
        DeadCode,
        chain(
            "a = Exp (x) b = Mul (a, k) c = Exp (b) y = Relu (a)",
            y="y c",
            constants="float k = {3.0}",
        ),
        unread=("c",),
    ),
    _case(
        "constant_folding",
        _folding,
        loop("p2 = Identity (p) r = Neg (p) s = Mul (r, r) q2 = Sub (q, s)", "k, u", STATES),
        first=(InvariantStates(),),
    ),
    _case(
        "common_subexpressions",
        CommonSubexpressions,
        chain("a = Exp (x) b = Exp (x) c = Add (a, x) d = Add (x, b) y = Mul (c, d)"),
    ),
    _case(
        "simplify_movements",
        Simplify,
        chain(
            "a = Transpose <perm = [1, 0]> (x) b = Relu (a) c = Transpose <perm = [1, 0]> (b) "
            "d = Transpose <perm = [1, 0]> (c) e = Transpose <perm = [1, 0]> (d) "
            "f = Reshape (e, s) h = Reshape (f, t) i = Neg (h) y = Transpose <perm = [1, 0]> (i)",
            constants="int64[2] s = {3, 2}, int64[2] t = {1, 6}",
        ),
    ),
    _case(
        "simplify_neutral",
        Simplify,
        chain(
            "a = Mul (one, x) b = Add (a, zero) c = Sub (b, zero) d = Div (c, one) "
            "e = Relu (d) f = Concat <axis = 1> (e, none) y = Neg (f)",
            constants="float one = {1.0}, float zero = {0.0}, float[2,0] none = {}",
        ),
    ),
    _case("layer_norm", RecogniseLayerNorm, norm(" t = Mul (n, scale) y = Add (bias, t)")),
    _case(
        "layer_norm_by_product",
        RecogniseLayerNorm,
        norm(" y = Identity (n)", square="q = Mul (d, d) "),
    ),
    _case(
        "layer_norm_partly_read",
        RecogniseLayerNorm,
        norm(" t = Mul (n, scale) y = Add (t, bias)", y="y t v"),
    ),
    _case(
        "gelu_tanh_product",
        RecogniseActivations,
        tanh_gelu("a = Mul (k, x) b = Mul (x, a) c = Mul (x, b)"),
    ),
    _case(
        "gelu_tanh_power",
        RecogniseActivations,
        tanh_gelu("a = Pow (x, three) c = Mul (a, k)"),
    ),
    _case(
        "gelu_half_last",
        RecogniseActivations,
        gelu("a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)"),
    ),
    _case(
        "gelu_half_first",
        RecogniseActivations,
        gelu("a = Div (x, root) b = Erf (a) c = Add (one, b) d = Mul (half, x) y = Mul (d, c)"),
    ),
    _case(
        "gelu_half_of_gate",
        RecogniseActivations,
        gelu("a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (c, half) y = Mul (x, d)"),
    ),
    _case(
        "hard_swish",
        RecogniseActivations,
        hard("a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, six)"),
    ),
    _case(
        "hard_swish_by_product",
        RecogniseActivations,
        hard("a = Add (three, x) b = Clip (a, zero, six) c = Mul (b, part) y = Mul (c, x)"),
    ),
    _case("attention", RecogniseAttention, attention()),
    _case("swish", RecogniseActivations, chain("a = Sigmoid (x) y = Mul (a, x)")),
    _case(
        "batch_norm",
        FoldBatchNorm,
        chain(
            "y = BatchNormalization (x, s, b, m, v)",
            x="float[2,3,2]",
            constants=NORM_PARAMETERS,
        ),
    ),
    _case(
        "channel_ops",
        FoldChannelOps,
        conv("c = Conv (x, w, b) d = Mul (c, s) e = Add (t, d) f = Div (e, s) y = Sub (f, t)"),
    ),
    _case("channel_ops_without_bias", FoldChannelOps, conv("c = Conv (x, w) y = Add (c, s)")),
    _case(
        "channel_ops_transposed",
        FoldChannelOps,
        transposed("c = ConvTranspose <group = 2> (x, w) y = Mul (s, c)"),
    ),
    _case(
        "epilogue_of_matmul",
        FuseEpilogues,
        chain(
            "p = MatMul (x, w) q = Add (b, p) r = Gelu (q) y = Neg (r)",
            constants=MATRIX + ", float[2] b = {1.0, -1.0}",
        ),
    ),
    _case(
        "epilogue_of_conv",
        FuseEpilogues,
        conv(
            "c = Conv <kernel_shape = [1, 2]> (x, w, b) r = Exp (c) "
            "d = Conv (x, w) e = Add (d, r) y = Relu (e)"
        ),
    ),
    _case(
        "elementwise",
        FuseElementwise,
        chain(
            "a = Add (x, three) c = Clip (a, zero, six) n = Neg (c) g = Greater (n, x) "
            "y = Where (g, c, n)",
            constants="float three = {3.0}, float zero = {0.0}, float six = {6.0}",
        ),
    ),
    _case(
        "quantisation",
        FuseQuantization,
        quantised("q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Neg (d)"),
    ),
    _case(
        "integer_products",
        IntegerProducts,
        quantised(
            "q = QuantizeLinear (x, s, z) t = Transpose (q) a = DequantizeLinear (t, other, z) "
            "b = DequantizeLinear <axis = 1> (q, rows, zeros) y = MatMul (a, b)"
        ),
    ),
    _case(
        "byte_epilogues",
        FuseByteEpilogues,
        quantised(
            "q = QuantizeLinear (x, s, z) t = Transpose (q) p = MatMulInteger (q, t, z, z) "
            "c = Cast <to = 1> (p) m = Mul (c, s) r = Relu (m) "
            "k = QuantizeLinear (r, other, z) y = DequantizeLinear (k, s, z)"
        ),
        first=(FuseQuantization(),),
    ),
    _case(
        "invariant_states",
        InvariantStates,
        loop("p2 = Mul (p, q) q2 = Identity (q)", "x, u", STATES),
    ),
    _case(
        "invariant_states_of_constants",
        InvariantStates,
        loop("p2 = Identity (p) q2 = Sub (q, p)", "k, u", STATES),
    ),
    _case(
        "hoisting",
        HoistInvariants,
        loop(
            "p2 = Identity (p) r = Sqrt (p) e = Exp (r) s = Mul (q, e) q2 = Add (s, r)",
            "k, u",
            STATES,
        ),
        first=(InvariantStates(),),
    ),
    _case("row_products", HoistRowProducts, rows("3")),
    _case(
        "subgraph_outputs",
        SubgraphOutputs,
        loop("p2 = Identity (q) q2 = Identity (p)", "x, u", STATES),
    ),
)
