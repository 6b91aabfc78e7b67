"""Exact products and convolutions of integers, on floating-point units.

numpy multiplies integer matrices without BLAS, a hundred times slower than floats.  But float32
holds every integer up to 2**24 exactly, so a float32 product of integer-valued matrices is exact,
in whatever order BLAS adds, as long as the absolute values of the terms of no sum add up to more.
Longer sums are cut into pieces that satisfy this, and the pieces are added as int32.
"""

from __future__ import annotations
