"""The bodies of small models in the text form of ONNX, to be varied by the cases."""

from __future__ import annotations

__all__ = [
    "MATRIX",
    "NORM_PARAMETERS",
    "STATES",
    "attention",
    "chain",
    "conv",
    "gelu",
    "hard",
    "loop",
    "norm",
    "quantised",
    "rows",
    "tanh_gelu",
    "transposed",
]


def chain(body: str, *, x: str = "float[2,3]", y: str = "y", constants: str = "") -> str:
    """A graph from one input ``x`` to outputs of inferred types."""
    outputs = ", ".join(f"float[] {name}" for name in y.split())
    return f"g ({x} x) => ({outputs}) <{constants}> {{ {body} }}"


STATES = "float[2] p2, float[2] q2"
MATRIX = "float[3,2] w = {1.0, -2.0, 3.0, 0.5, 0.0, 4.0}"
NORM = (
    "m = ReduceMean <keepdims = 1> (x, axes)  d = Sub (x, m)  {square}"
    "v = ReduceMean <keepdims = 1> (q, axes)  e = Add ({sum})  r = Sqrt (e)  n = Div (d, r)"
)
NORM_CONSTANTS = (
    "int64[1] axes = {{-1}}, float two = {{{power}}}, float epsilon = {{0.001}}, "
    "float[3] scale = {{1.0, 2.0, -0.5}}, float[3] bias = {{0.5, 0.0, 1.0}}"
)


def norm(tail: str, *, power: str = "2.0", square: str = "q = Pow (d, two) ", y: str = "y") -> str:
    body = NORM.format(square=square, sum="v, epsilon") + tail
    return chain(body, constants=NORM_CONSTANTS.format(power=power), y=y)


def tanh_gelu(cube: str, *, root: str = "0.7978846") -> str:
    """0.5 * x * (1 + tanh(root * (x + c))), where ``cube`` computes c from x and k."""
    return f"""agraph (float[2, 8] x) => (float[2, 8] y)
    <float half = {{0.5}}, float one = {{1.0}}, float three = {{3.0}},
     float root = {{{root}}}, float k = {{0.044715}}>
    {{ {cube} s = Add (x, c) t = Mul (root, s) u = Tanh (t) v = Add (one, u)
      h = Mul (half, v) y = Mul (x, h) }}"""


def gelu(body: str, *, root: str = "1.4142135", half: str = "0.5", y: str = "y") -> str:
    constants = f"float root = {{{root}}}, float one = {{1.0}}, float half = {{{half}}}"
    return chain(body, constants=constants, y=y)


def hard(body: str, *, high: str = "6.0", y: str = "y") -> str:
    constants = f"float three = {{3.0}}, float zero = {{0.0}}, float six = {{{high}}}"
    return chain(body, constants=constants + ", float part = {0.16666667}", y=y)


CONV_CONSTANTS = (
    "float[2,1,1,2] w = {1.0, -1.0, 0.5, 2.0}, float[2] b = {0.25, -0.5}, "
    "float[2,1,1] s = {2.0, -4.0}, float[1,1,1,3] columns = {1.0, 2.0, 3.0}, "
    "float[1,2,1,1] t = {3.0, 5.0}"
)


def conv(body: str, y: str = "y") -> str:
    return chain(body, x="float[1,1,2,4]", constants=CONV_CONSTANTS, y=y)


def transposed(body: str) -> str:
    constants = (
        "float[4,2,1,1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}, "
        "float[4,1,1] s = {1.0, -2.0, 0.5, 3.0}"
    )
    return chain(body, x="float[1,4,2,2]", constants=constants)


NORM_PARAMETERS = (
    "float[3] s = {1.0, 2.0, -1.0}, float[3] b = {0.5, 0.0, 1.0}, float[3] m = {0.1, 0.2, 0.3}, "
    "float[3] v = {1.0, 0.25, 4.0}"
)


def attention(y: str = "y", axis: int = -1) -> str:
    """Self-attention of two heads over three rows."""
    body = (
        "k = Transpose <perm = [0, 1, 3, 2]> (x) s = MatMul (x, k) d = Div (s, two) "
        f"m = Add (d, mask) p = Softmax <axis = {axis}> (m) o = MatMul (p, x) "
        "y = Transpose <perm = [0, 2, 1, 3]> (o)"
    )
    mask = "{0.0, -9.0, -9.0, 0.0, 0.0, -9.0, 0.0, 1.0, 0.0}"
    constants = f"float two = {{2.0}}, float[3,3] mask = {mask}"
    return chain(body, x="float[1,2,3,4]", constants=constants, y=y)


def quantised(body: str, y: str = "y") -> str:
    constants = (
        "float s = {0.1}, float other = {0.2}, uint8 z = {100}, "
        "float[3] rows = {0.1, 0.2, 0.3}, uint8[3] zeros = {1, 2, 3}"
    )
    return chain(body, constants=constants, y=y)


def loop(
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


def rows(trips: str) -> str:
    """A recurrent network over the rows of x."""
    return f"""g (float[3,1,2] x, float[1,2] h0) => (float[1,2] h) <
            int64 n = {{{trips}}}, float[2,2] w = {{1.0, -1.0, 0.5, 2.0}}> {{
        h = Loop <body = step (int64 i, bool c, float[1,2] h1) => (bool go, float[1,2] h2) {{
            go = Identity (c) row = Gather (x, i) p = MatMul (row, w)
            s = Add (p, h1) h2 = Tanh (s) }}> (n, , h0)
    }}"""
