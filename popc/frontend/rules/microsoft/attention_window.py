"""Caches that hold only the latest keys, which is all that attention by a window reads."""

from __future__ import annotations

from popc.frontend.node import Node
from popc.frontend.rules.moves import emit_reshape
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["WindowCache", "rows_from", "window_cache"]


@frozen
class WindowCache:
    """A cache of ``capacity`` keys, of which the first are the latest ones of a sample, in order.

    Keys leave from the front, ``block`` of them whenever there are more than ``capacity``, so that
    at least a window remains.  The rest holds anything (onnxruntime's ContribOperators.md).
    """

    capacity: int
    block: int

    def resident(self, node: Node, count: Tensor) -> Tensor:
        """The number of keys that are held of ``count`` in all: int64, of its shape."""
        beyond = node.emit("Sub", [count, node.constant(self.capacity, DType.INT64)])
        beyond = node.emit("Max", [beyond, node.constant(0, DType.INT64)])
        raised = node.emit("Add", [beyond, node.constant(self.block - 1, DType.INT64)])
        block = node.constant(self.block, DType.INT64)
        left = node.emit("Mul", [node.emit("Div", [raised, block]), block])
        return node.emit("Sub", [count, left])

    def latest(self, node: Node, keys: Tensor, count: Tensor, held: Tensor) -> Tensor:
        """[B, N, C, H]: the last ``held`` of ``count`` keys [B]; behind them, anything."""
        batch, last = keys.type.shape[0], node.constant(keys.type.shape[2] - 1, DType.INT64)
        first = emit_reshape(node, node.emit("Sub", [count, held]), (batch, 1))
        places = node.constant(node.positions(self.capacity).reshape(1, -1))
        rows = node.emit("Min", [node.emit("Add", [first, places]), last])
        return rows_from(node, keys, rows)


def window_cache(node: Node, capacity: int, total: int | None) -> WindowCache:
    """The kind of the caches of a GroupQueryAttention, for ``total`` keys, if that is known."""
    window = node.integer("local_window_size", -1)
    if not 0 < window <= capacity:
        raise ModelError(
            f"sliding_window_cache keeps a window of keys, but local_window_size is {window} and "
            f"the cache has room for {capacity}"
        )
    has_scores = node.optional(10) is not None or node.wants_output(3)
    if has_scores and (total is None or total > capacity):
        raise ModelError(
            f"a cache of {capacity} of {total or 'all'} keys goes with neither a bias of scores "
            "nor scores"
        )
    return WindowCache(capacity, capacity - window + 1)


def rows_from(node: Node, keys: Tensor, rows: Tensor) -> Tensor:
    """Keys [B, N, K, H] at the places ``rows`` [B, R] or [1, R], which are those of all."""
    batch, heads, _, size = keys.type.shape
    count = rows.type.shape[1]
    if batch == 1:
        return node.emit("Gather", [keys, emit_reshape(node, rows, (count,))], {"axis": 2})
    index = emit_reshape(node, rows, (rows.type.shape[0], 1, count, 1))
    index = node.emit("Expand", [index], {"shape": (batch, heads, count, size)})
    return node.emit("GatherElements", [keys, index], {"axis": 2})
