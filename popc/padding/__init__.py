"""Proof that positions which a dimension is filled up with change nothing of the others.

A text of 40 words may run in the program for 64 if nothing looks at the other 24.  The graph is
imported for two sizes, and walked twice at once: the axes along which tensors differ are those that
are filled up, and of each it is told what lies at the positions that were added.  A mask that is
filled up with 0 makes scores of -10000 or less there, whose share in a Softmax is exactly 0; a sum
over positions adds zeros.  What is not known to leave them out is refused, with the op.

Taken for granted is that numbers are finite, that scores are smaller in size than the mask's, and
that every sample has a position that counts.
"""

from popc.padding.walk import prove_padding

__all__ = ["prove_padding"]
