"""Convolution on graphs by B-splines (Fey et al., SplineCNN)."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, pure
from popc_runtime.kernels.core.indices import check_bounds
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

# The pieces of a B-spline of each degree that cover a place v in [0, 1): row k holds the
# coefficients of 1, v, v^2, ... for the k-th of the splines that are not zero there.
_PIECES: Final = (
    np.array([[1.0]]),
    np.array([[1.0, -1.0], [0.0, 1.0]]),
    np.array([[1.0, -2.0, 1.0], [1.0, 2.0, -2.0], [0.0, 0.0, 1.0]]) / 2,
    np.array(
        [
            [1.0, -3.0, 3.0, -1.0],
            [4.0, 0.0, -6.0, 3.0],
            [1.0, 3.0, 3.0, -3.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    / 6,
)
_BLOCK: Final = 1 << 18  # elements of the weighted features of a block of edges


class _Places:
    """The places of the edges along each dimension, in units of the distance of two knots."""

    def __init__(self, binding: Binding) -> None:
        places = binding.input(0)
        self.degree = binding.integer("degree")
        self.sizes = binding.input(1).astype(np.int64)
        closed = binding.input(2) == 0
        self.scale = np.where(closed, self.sizes, self.sizes - self.degree).astype(places.dtype)
        scaled = places * self.scale
        knots = np.floor(scaled)
        self.knots = knots.astype(np.int64)
        self.rest = scaled - knots

    def pieces(self, dimension: int, *, derived: bool = False) -> Array:
        """The splines of one dimension at each place [E, degree + 1], or their derivatives."""
        rest = self.rest[:, dimension, None]
        powers = np.arange(self.degree + 1, dtype=rest.dtype)
        table = _PIECES[self.degree].astype(rest.dtype)
        if derived:
            table = table[:, 1:] * powers[1:]
            powers = powers[:-1]
        found = np.asarray(rest**powers @ table.T)
        # Terms of the first piece cancel near 1: it is the last one, seen from there.
        if self.degree > int(derived):
            found[:, 0] = ((1 - rest) ** powers @ table[-1]) * (-1 if derived else 1)
        return found

    def products(self, derived: int = -1) -> Array:
        """All products of one spline per dimension [E, S], that of ``derived`` differentiated."""
        edges, dimensions = self.rest.shape
        total = np.ones((edges, 1), self.rest.dtype)
        for dimension in range(dimensions):
            pieces = self.pieces(dimension, derived=dimension == derived)
            total = (pieces[:, :, None] * total[:, None, :]).reshape(edges, -1)
        return total

    def kernels(self) -> Array:
        """The kernel that each product belongs to; the last ones of closed splines wrap round."""
        edges, dimensions = self.knots.shape
        number, stride = np.zeros((edges, 1), np.int64), 1
        steps = np.arange(self.degree + 1)
        for dimension in range(dimensions):
            size = self.sizes[dimension]
            own = (self.knots[:, dimension, None] + steps) % size * stride
            number = (own[:, :, None] + number[:, None, :]).reshape(edges, -1)
            stride *= size
        return number


def _basis(binding: Binding) -> tuple[Array, Array]:
    places = _Places(binding)
    return places.products(), places.kernels()


def _basis_grad(binding: Binding) -> Array:
    places, grad = _Places(binding), binding.input(3)
    columns = [
        (grad * places.products(derived=dimension)).sum(axis=1) * scale
        for dimension, scale in enumerate(places.scale)
    ]
    return np.stack(columns, axis=1) if columns else np.empty_like(binding.output())


class _Weighting:
    """A product of matrices: features times the basis, one column per kernel and feature.

    Most of those columns are zero, but one large product is faster than many small ones.
    """

    def __init__(self, binding: Binding) -> None:
        self.x, self.weight, self.basis, self.numbers = map(binding.input, range(4))
        kernels, features, _ = self.weight.shape
        self.kernels = kernels
        edges = max(1, min(len(self.x), _BLOCK // max(1, kernels * features)))
        self.parts = [slice(at, at + edges) for at in range(0, len(self.x), edges)]
        dtype = self.x.dtype
        self._factors = binding.scratch.take((edges, kernels), dtype)
        self._columns = binding.scratch.take((edges, kernels, features), dtype)

    def check(self) -> None:
        """Raise IndexError unless every kernel number is one."""
        if self.numbers.size and self.numbers.min() < 0:
            raise IndexError(f"kernel number {self.numbers.min()} is negative")
        check_bounds(self.numbers, self.kernels)

    def factors(self, part: slice) -> Array:
        """The factors of the features of each edge for each kernel."""
        numbers, basis = self.numbers[part].astype(np.int64), self.basis[part]
        factors = self._factors[: len(numbers)]
        factors.fill(0)
        places = numbers + np.arange(len(numbers))[:, None] * self.kernels
        np.add.at(factors.reshape(-1), places.reshape(-1), basis.reshape(-1))
        return factors

    def columns(self, part: slice, factors: Array) -> Array:
        """The features of each edge times its factors [edges, kernels * features]."""
        columns = self._columns[: len(factors)]
        np.multiply(factors[:, :, None], self.x[part][:, None, :], out=columns)
        return columns.reshape(len(factors), -1)

    def matrix(self) -> Array:
        """The weights as one matrix [kernels * features, out]."""
        return self.weight.reshape(-1, self.weight.shape[-1])


def _weighting(binding: Binding) -> Calls:
    return partial(_weigh, _Weighting(binding), binding.output())


def _weigh(parts: _Weighting, out: Array) -> None:
    parts.check()
    matrix = parts.matrix()
    for part in parts.parts:
        np.matmul(parts.columns(part, parts.factors(part)), matrix, out=out[part])


def _weighting_grad(binding: Binding) -> Calls:
    weighting, grad = _Weighting(binding), binding.input(4)
    outputs = [binding.optional_output(index) for index in range(3)]
    return partial(_weigh_back, weighting, grad, *outputs)


def _weigh_back(
    parts: _Weighting, grad: Array, dx: Array | None, dweight: Array | None, dbasis: Array | None
) -> None:
    parts.check()
    matrix = parts.matrix()
    if dweight is not None:
        dweight.fill(0)
    for part in parts.parts:
        g, factors = grad[part], parts.factors(part)
        if dweight is not None:
            dweight += (parts.columns(part, factors).T @ g).reshape(dweight.shape)
        back = (g @ matrix.T).reshape(len(g), parts.kernels, -1)
        if dx is not None:
            np.matmul(factors[:, None, :], back, out=dx[part][:, None, :])
        if dbasis is not None:
            slopes = np.matmul(back, parts.x[part][:, :, None])[..., 0]
            dbasis[part] = np.take_along_axis(slopes, parts.numbers[part].astype(np.int64), 1)


KERNELS: Final[dict[str, Kernel]] = {
    "SplineBasis": in_float32(pure(_basis)),
    "SplineBasisGrad": in_float32(pure(_basis_grad)),
    "SplineWeighting": in_float32(_weighting),
    "SplineWeightingGrad": in_float32(_weighting_grad),
}
