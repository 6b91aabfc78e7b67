"""Whole numbers as polynomials of unknown ones, of which the least and the most may be known."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import inf, isfinite
from typing import Final, TypeAlias

from popc_runtime.ground.frozen import frozen

__all__ = ["ONE", "ZERO", "Range", "Size", "SizeAlgebra", "product_of_ranges"]

# The least and the most, inclusive.
Range: TypeAlias = tuple[float, float]
_Monomial: TypeAlias = tuple[int, ...]  # numbers of atoms, ascending, repeated for powers


@frozen
class Size:
    """A sum of products of atoms; equal polynomials are equal sizes.

    Attributes:
        terms: Each product with its factor, in the order of the products; no factor is 0.
    """

    terms: tuple[tuple[_Monomial, int], ...]

    @property
    def known(self) -> int | None:
        """The number, ``None`` if data decides it."""
        if not self.terms:
            return 0
        monomial, factor = self.terms[0]
        return factor if len(self.terms) == 1 and not monomial else None


_MOST_TERMS: Final = 32  # of a quotient
ZERO: Final = Size(())
ONE: Final = Size((((), 1),))


def _size(terms: Iterable[tuple[_Monomial, int]]) -> Size:
    found: dict[_Monomial, int] = {}
    for monomial, factor in terms:
        found[monomial] = found.get(monomial, 0) + factor
    return Size(tuple(sorted((m, f) for m, f in found.items() if f)))


def product_of_ranges(left: Range, right: Range) -> Range:
    """The range of products; 0 times infinity is 0, because no number is infinite."""
    corners = [0.0 if 0 in (a, b) else a * b for a in left for b in right]
    return min(corners), max(corners)


class SizeAlgebra:
    """Arithmetic on sizes; atoms are numbered as they are met, equal ones alike."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._numbers: dict[object, int] = {}

    @staticmethod
    def constant(number: int) -> Size:
        """A number that is known."""
        return Size((((), number),)) if number else ZERO

    def atom(self, key: object, low: float, high: float) -> Size:
        """An unknown number between ``low`` and ``high``; the same for the same ``key``."""
        if low == high and isfinite(low):
            return self.constant(int(low))
        if key not in self._numbers:
            self._numbers[key] = len(self._ranges)
            self._ranges.append((low, high))
        return Size((((self._numbers[key],), 1),))

    def range(self, size: Size) -> Range:
        """The least and the most that ``size`` can be."""
        low = high = 0.0
        for monomial, factor in size.terms:
            factors = [self._ranges[number] for number in monomial]
            least, most = reduce(product_of_ranges, factors, (float(factor), float(factor)))
            low, high = low + least, high + most
        return low, high

    @staticmethod
    def add(left: Size, right: Size) -> Size:
        """The sum."""
        return _size((*left.terms, *right.terms))

    def sub(self, left: Size, right: Size) -> Size:
        """The difference."""
        return _size((*left.terms, *((m, -f) for m, f in right.terms)))

    @staticmethod
    def mul(left: Size, right: Size) -> Size:
        """The product."""
        return _size(
            (tuple(sorted((*m, *n))), f * g) for m, f in left.terms for n, g in right.terms
        )

    def product(self, sizes: Iterable[Size]) -> Size:
        """The product of all."""
        return reduce(self.mul, sizes, ONE)

    def div(self, left: Size, right: Size) -> Size:
        """The quotient, rounded towards zero; exact where one polynomial divides the other."""
        exact = self._exact(left, right)
        if exact is not None:
            return exact
        (low, high), (least, _) = self.range(left), self.range(right)
        if low >= 0 and least >= 0:
            divisor = max(least, 1)
            return self.atom(("div", left, right), 0, high // divisor if high < inf else inf)
        return self.atom(("div", left, right), -inf, inf)

    def _exact(self, left: Size, right: Size) -> Size | None:
        """The quotient of a long division, leading term by leading term; ``None`` with a rest."""
        if not right.terms:
            return None
        divisor = max(right.terms, key=_rank)
        found: list[tuple[_Monomial, int]] = []
        while left.terms and len(found) < _MOST_TERMS:
            term = _quotient(max(left.terms, key=_rank), divisor)
            if term is None:
                return None
            found.append(term)
            left = self.sub(left, self.mul(Size((term,)), right))
        return None if left.terms else _size(found)

    def minimum(self, left: Size, right: Size) -> Size:
        """The smaller one."""
        return self._extremum("min", left, right)

    def maximum(self, left: Size, right: Size) -> Size:
        """The larger one."""
        return self._extremum("max", left, right)

    def _extremum(self, kind: str, left: Size, right: Size) -> Size:
        low, high = self.range(self.sub(left, right))
        (a, b), (c, d) = self.range(left), self.range(right)
        smaller, larger = (left, right) if kind == "min" else (right, left)
        if high <= 0 or b <= c:
            return smaller
        if low >= 0 or d <= a:
            return larger
        pick = min if kind == "min" else max
        return self.atom((kind, frozenset((left, right))), pick(a, c), pick(b, d))

    def compare(self, left: Size, right: Size) -> Range:
        """The range of the difference: (0, 0) if both are equal."""
        difference = self.sub(left, right)
        (a, b), (c, d) = self.range(left), self.range(right)
        low, high = self.range(difference)
        return max(low, a - d), min(high, b - c)


def _rank(term: tuple[_Monomial, int]) -> tuple[int, _Monomial]:
    """The order of terms: by degree, then by atoms."""
    return len(term[0]), term[0]


def _quotient(
    term: tuple[_Monomial, int], divisor: tuple[_Monomial, int]
) -> tuple[_Monomial, int] | None:
    """A term over another; ``None`` if there is a rest."""
    rest = list(term[0])
    for number in divisor[0]:
        if number not in rest:
            return None
        rest.remove(number)
    return None if term[1] % divisor[1] else (tuple(rest), term[1] // divisor[1])
