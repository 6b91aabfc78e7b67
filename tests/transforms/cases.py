"""Small models on which passes fire, and models on which they must not.

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
from popc.transforms.fuse_epilogues import FuseEpilogues
from popc.transforms.fuse_quantization import FuseQuantization
from popc.transforms.hoist_invariants import HoistInvariants
from popc.transforms.hoist_row_products import HoistRowProducts
from popc.transforms.invariant_states import InvariantStates
from popc.transforms.recognise_activations import RecogniseActivations
from popc.transforms.recognise_attention import RecogniseAttention
from popc.transforms.recognise_layer_norm import RecogniseLayerNorm
from popc.transforms.simplify import Simplify
from popc.transforms.subgraph_outputs import SubgraphOutputs

__all__ = ["FIRING", "QUIET", "Case"]

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


def _chain(body: str, *, x: str = "float[2,3]", y: str = "y", constants: str = "") -> str:
    """A graph from one input ``x`` to outputs of inferred types."""
    outputs = ", ".join(f"float[] {name}" for name in y.split())
    return f"g ({x} x) => ({outputs}) <{constants}> {{ {body} }}"


def _folding() -> Pass:
    return ConstantFolding(growth_limit=0)


_STATES = "float[2] p2, float[2] q2"
_MATRIX = "float[3,2] w = {1.0, -2.0, 3.0, 0.5, 0.0, 4.0}"
_NORM = (
    "m = ReduceMean <keepdims = 1> (x, axes)  d = Sub (x, m)  {square}"
    "v = ReduceMean <keepdims = 1> (q, axes)  e = Add ({sum})  r = Sqrt (e)  n = Div (d, r)"
)
_NORM_CONSTANTS = (
    "int64[1] axes = {{-1}}, float two = {{{power}}}, float epsilon = {{0.001}}, "
    "float[3] scale = {{1.0, 2.0, -0.5}}, float[3] bias = {{0.5, 0.0, 1.0}}"
)


def _norm(tail: str, *, power: str = "2.0", square: str = "q = Pow (d, two) ", y: str = "y") -> str:
    body = _NORM.format(square=square, sum="v, epsilon") + tail
    return _chain(body, constants=_NORM_CONSTANTS.format(power=power), y=y)


def _tanh_gelu(cube: str, *, root: str = "0.7978846") -> str:
    """0.5 * x * (1 + tanh(root * (x + c))), where ``cube`` computes c from x and k."""
    return f"""agraph (float[2, 8] x) => (float[2, 8] y)
    <float half = {{0.5}}, float one = {{1.0}}, float three = {{3.0}},
     float root = {{{root}}}, float k = {{0.044715}}>
    {{ {cube} s = Add (x, c) t = Mul (root, s) u = Tanh (t) v = Add (one, u)
      h = Mul (half, v) y = Mul (x, h) }}"""


def _gelu(body: str, *, root: str = "1.4142135", half: str = "0.5", y: str = "y") -> str:
    constants = f"float root = {{{root}}}, float one = {{1.0}}, float half = {{{half}}}"
    return _chain(body, constants=constants, y=y)


def _hard(body: str, *, high: str = "6.0", y: str = "y") -> str:
    constants = f"float three = {{3.0}}, float zero = {{0.0}}, float six = {{{high}}}"
    return _chain(body, constants=constants + ", float part = {0.16666667}", y=y)


_CONV_CONSTANTS = (
    "float[2,1,1,2] w = {1.0, -1.0, 0.5, 2.0}, float[2] b = {0.25, -0.5}, "
    "float[2,1,1] s = {2.0, -4.0}, float[1,1,1,3] columns = {1.0, 2.0, 3.0}, "
    "float[1,2,1,1] t = {3.0, 5.0}"
)


def _conv(body: str, y: str = "y") -> str:
    return _chain(body, x="float[1,1,2,4]", constants=_CONV_CONSTANTS, y=y)


def _transposed(body: str) -> str:
    constants = (
        "float[4,2,1,1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}, "
        "float[4,1,1] s = {1.0, -2.0, 0.5, 3.0}"
    )
    return _chain(body, x="float[1,4,2,2]", constants=constants)


_NORM_PARAMETERS = (
    "float[3] s = {1.0, 2.0, -1.0}, float[3] b = {0.5, 0.0, 1.0}, float[3] m = {0.1, 0.2, 0.3}, "
    "float[3] v = {1.0, 0.25, 4.0}"
)


def _attention(y: str = "y", axis: int = -1) -> str:
    """Self-attention of two heads over three rows."""
    body = (
        "k = Transpose <perm = [0, 1, 3, 2]> (x) s = MatMul (x, k) d = Div (s, two) "
        f"m = Add (d, mask) p = Softmax <axis = {axis}> (m) o = MatMul (p, x) "
        "y = Transpose <perm = [0, 2, 1, 3]> (o)"
    )
    mask = "{0.0, -9.0, -9.0, 0.0, 0.0, -9.0, 0.0, 1.0, 0.0}"
    constants = f"float two = {{2.0}}, float[3,3] mask = {mask}"
    return _chain(body, x="float[1,2,3,4]", constants=constants, y=y)


def _quantised(body: str, y: str = "y") -> str:
    constants = (
        "float s = {0.1}, float other = {0.2}, uint8 z = {100}, "
        "float[3] rows = {0.1, 0.2, 0.3}, uint8[3] zeros = {1, 2, 3}"
    )
    return _chain(body, constants=constants, y=y)


def _loop(
    body: str,
    states: str,
    carried: str,
    *,
    results: str = "a, b",
    y: str = "float[2] a, float[2] b",
) -> str:
    return f"""g (float[2] x, float[2] u) => ({y}) <int64 n = {{3}}, float[2] k = {{0.5, 2.0}}> {{
        {results} = Loop <body = step (int64 i, bool c, float[2] p, float[2] q)
            => (bool go, {carried}) {{ go = Identity (c) {body} }}> (n, , {states})
    }}"""


def _rows(trips: str) -> str:
    """A recurrent network over the rows of x."""
    return f"""g (float[3,1,2] x, float[1,2] h0) => (float[1,2] h) <
            int64 n = {{{trips}}}, float[2,2] w = {{1.0, -1.0, 0.5, 2.0}}> {{
        h = Loop <body = step (int64 i, bool c, float[1,2] h1) => (bool go, float[1,2] h2) {{
            go = Identity (c) row = Gather (x, i) p = MatMul (row, w)
            s = Add (p, h1) h2 = Tanh (s) }}> (n, , h0)
    }}"""


FIRING: Final = (
    _case(
        "dead_code",
        DeadCode,
        _chain(
            "a = Exp (x) b = Mul (a, k) c = Exp (b) y = Relu (a)",
            y="y c",
            constants="float k = {3.0}",
        ),
        unread=("c",),
    ),
    _case(
        "constant_folding",
        _folding,
        _loop("p2 = Identity (p) r = Neg (p) s = Mul (r, r) q2 = Sub (q, s)", "k, u", _STATES),
        first=(InvariantStates(),),
    ),
    _case(
        "common_subexpressions",
        CommonSubexpressions,
        _chain("a = Exp (x) b = Exp (x) c = Add (a, x) d = Add (x, b) y = Mul (c, d)"),
    ),
    _case(
        "simplify_movements",
        Simplify,
        _chain(
            "a = Transpose <perm = [1, 0]> (x) b = Relu (a) c = Transpose <perm = [1, 0]> (b) "
            "d = Transpose <perm = [1, 0]> (c) e = Transpose <perm = [1, 0]> (d) "
            "f = Reshape (e, s) h = Reshape (f, t) i = Neg (h) y = Transpose <perm = [1, 0]> (i)",
            constants="int64[2] s = {3, 2}, int64[2] t = {1, 6}",
        ),
    ),
    _case(
        "simplify_neutral",
        Simplify,
        _chain(
            "a = Mul (one, x) b = Add (a, zero) c = Sub (b, zero) d = Div (c, one) "
            "e = Relu (d) f = Concat <axis = 1> (e, none) y = Neg (f)",
            constants="float one = {1.0}, float zero = {0.0}, float[2,0] none = {}",
        ),
    ),
    _case("layer_norm", RecogniseLayerNorm, _norm(" t = Mul (n, scale) y = Add (bias, t)")),
    _case(
        "layer_norm_by_product",
        RecogniseLayerNorm,
        _norm(" y = Identity (n)", square="q = Mul (d, d) "),
    ),
    _case(
        "layer_norm_partly_read",
        RecogniseLayerNorm,
        _norm(" t = Mul (n, scale) y = Add (t, bias)", y="y t v"),
    ),
    _case(
        "gelu_tanh_product",
        RecogniseActivations,
        _tanh_gelu("a = Mul (k, x) b = Mul (x, a) c = Mul (x, b)"),
    ),
    _case(
        "gelu_tanh_power",
        RecogniseActivations,
        _tanh_gelu("a = Pow (x, three) c = Mul (a, k)"),
    ),
    _case(
        "gelu_half_last",
        RecogniseActivations,
        _gelu("a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)"),
    ),
    _case(
        "gelu_half_first",
        RecogniseActivations,
        _gelu("a = Div (x, root) b = Erf (a) c = Add (one, b) d = Mul (half, x) y = Mul (d, c)"),
    ),
    _case(
        "gelu_half_of_gate",
        RecogniseActivations,
        _gelu("a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (c, half) y = Mul (x, d)"),
    ),
    _case(
        "hard_swish",
        RecogniseActivations,
        _hard("a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, six)"),
    ),
    _case(
        "hard_swish_by_product",
        RecogniseActivations,
        _hard("a = Add (three, x) b = Clip (a, zero, six) c = Mul (b, part) y = Mul (c, x)"),
    ),
    _case("attention", RecogniseAttention, _attention()),
    _case("swish", RecogniseActivations, _chain("a = Sigmoid (x) y = Mul (a, x)")),
    _case(
        "batch_norm",
        FoldBatchNorm,
        _chain(
            "y = BatchNormalization (x, s, b, m, v)",
            x="float[2,3,2]",
            constants=_NORM_PARAMETERS,
        ),
    ),
    _case(
        "channel_ops",
        FoldChannelOps,
        _conv("c = Conv (x, w, b) d = Mul (c, s) e = Add (t, d) f = Div (e, s) y = Sub (f, t)"),
    ),
    _case("channel_ops_without_bias", FoldChannelOps, _conv("c = Conv (x, w) y = Add (c, s)")),
    _case(
        "channel_ops_transposed",
        FoldChannelOps,
        _transposed("c = ConvTranspose <group = 2> (x, w) y = Mul (s, c)"),
    ),
    _case(
        "epilogue_of_matmul",
        FuseEpilogues,
        _chain(
            "p = MatMul (x, w) q = Add (b, p) r = Gelu (q) y = Neg (r)",
            constants=_MATRIX + ", float[2] b = {1.0, -1.0}",
        ),
    ),
    _case(
        "epilogue_of_conv",
        FuseEpilogues,
        _conv(
            "c = Conv <kernel_shape = [1, 2]> (x, w, b) r = Exp (c) "
            "d = Conv (x, w) e = Add (d, r) y = Relu (e)"
        ),
    ),
    _case(
        "quantisation",
        FuseQuantization,
        _quantised("q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Neg (d)"),
    ),
    _case(
        "invariant_states",
        InvariantStates,
        _loop("p2 = Mul (p, q) q2 = Identity (q)", "x, u", _STATES),
    ),
    _case(
        "invariant_states_of_constants",
        InvariantStates,
        _loop("p2 = Identity (p) q2 = Sub (q, p)", "k, u", _STATES),
    ),
    _case(
        "hoisting",
        HoistInvariants,
        _loop(
            "p2 = Identity (p) r = Sqrt (p) e = Exp (r) s = Mul (q, e) q2 = Add (s, r)",
            "k, u",
            _STATES,
        ),
        first=(InvariantStates(),),
    ),
    _case("row_products", HoistRowProducts, _rows("3")),
    _case(
        "subgraph_outputs",
        SubgraphOutputs,
        _loop("p2 = Identity (q) q2 = Identity (p)", "x, u", _STATES),
    ),
)

QUIET: Final = (
    _case("all used", DeadCode, _chain("a = Exp (x) y = Neg (a)")),
    _case("growth", _folding, _loop(
        "p2 = Identity (p) d = Cast <to = 11> (p) f = Cast <to = 11> (q) e = Add (d, f) "
        "q2 = Cast <to = 1> (e)", "k, u", _STATES), first=(InvariantStates(),)),
    _case("run-time operand", _folding, _chain("y = Neg (x)")),
    _case("random", CommonSubexpressions, _chain(
        "a = RandomUniformLike (x) b = RandomUniformLike (x) y = Sub (a, b)")),
    _case("not commutative", CommonSubexpressions, _chain(
        "e = Exp (x) a = Sub (x, e) b = Sub (e, x) y = Mul (a, b)")),
    _case("other attribute", CommonSubexpressions, _chain(
        "a = Elu <alpha = 1.0> (x) b = Elu <alpha = 2.0> (x) y = Mul (a, b)")),
    _case("neutral on the wrong side", Simplify, _chain(
        "a = Sub (zero, x) y = Div (one, a)", constants="float one = {1.0}, float zero = {0.0}")),
    _case("neutral that broadcasts", Simplify, _chain(
        "y = Mul (x, one)", constants="float[1,1,1] one = {1.0}")),
    _case("nearly neutral", Simplify, _chain("y = Mul (x, one)", constants="float one = {1.01}")),
    _case("transpose that moves", Simplify, _chain(
        "a = Transpose <perm = [1, 0]> (x) y = Neg (a)")),
    _case("cube", RecogniseLayerNorm, _norm(" y = Identity (n)", power="3.0")),
    _case("square of another", RecogniseLayerNorm, _norm(
        " y = Identity (n)", square="q = Mul (x, x) ")),
    _case("other axis", RecogniseLayerNorm, _norm(" y = Identity (n)").replace("{-1}", "{0}")),
    _case("wrong power", RecogniseActivations, _tanh_gelu("a = Mul (k, x) c = Mul (x, a)")),
    _case("wrong factor of tanh", RecogniseActivations, _tanh_gelu(
        "a = Pow (x, three) c = Mul (a, k)", root="0.8")),
    _case("wrong root", RecogniseActivations, _gelu(
        "a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)",
        root="1.5")),
    _case("wrong half", RecogniseActivations, _gelu(
        "a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)",
        half="0.4")),
    _case("gate of another", RecogniseActivations, _chain(
        "e = Exp (x) a = Sigmoid (e) y = Mul (a, x)")),
    _case("wrong limit", RecogniseActivations, _hard(
        "a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Mul (c, part)", high="5.0")),
    _case("scores anchored", RecogniseAttention, _attention(y="y d")),
    _case("softmax over queries", RecogniseAttention, _attention(axis=2)),
    _case("run-time statistics", FoldBatchNorm, """
        g (float[2,3] x, float[3] r) => (float[2,3] y) <float[3] s = {1.0, 2.0, 3.0}> {
            y = BatchNormalization (x, s, s, s, r) }"""),
    _case("channels read twice", FoldChannelOps, _conv(
        "c = Conv (x, w) a = Mul (c, s) y = Add (a, c)")),
    _case("channels anchored", FoldChannelOps, _conv("c = Conv (x, w) y = Mul (c, s)", y="y c")),
    _case("along columns", FoldChannelOps, _conv("c = Conv (x, w) y = Mul (c, columns)")),
    _case("constant minus channels", FoldChannelOps, _conv("c = Conv (x, w) y = Sub (s, c)")),
    _case("product read twice", FuseEpilogues, _chain(
        "p = MatMul (x, w) r = Relu (p) y = Mul (r, p)", constants=_MATRIX)),
    _case("product anchored", FuseEpilogues, _chain(
        "p = MatMul (x, w) y = Relu (p)", constants=_MATRIX, y="y p")),
    _case("sum that broadcasts the product", FuseEpilogues, _chain(
        "p = MatMul (x, w) y = Add (p, b)",
        constants=_MATRIX + ", float[2,1,1] b = {1.0, 2.0}")),
    _case("other scale", FuseQuantization, _quantised(
        "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, other, z)")),
    _case("scale per column", FuseQuantization, _quantised(
        "q = QuantizeLinear (x, rows, zeros) y = DequantizeLinear (q, rows, zeros)")),
    _case("states that change places", InvariantStates, _loop(
        "p2 = Identity (q) q2 = Identity (p)", "x, u", _STATES)),
    _case("body without constants", HoistInvariants, _loop(
        "p2 = Mul (p, q) q2 = Exp (q)", "x, u", _STATES)),
    _case("fewer iterations than rows", HoistRowProducts, _rows("2")),
    _case("outputs of ops", SubgraphOutputs, _loop(
        "p2 = Mul (p, q) q2 = Exp (q)", "x, u", _STATES)),
)  # fmt: skip
