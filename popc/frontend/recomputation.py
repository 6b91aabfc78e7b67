"""The results of nodes that the backward pass computes once more, as the user says.

PopART's builder writes it into an attribute of a node; options name tensors by patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.names import did_you_mean, shown
from popc.frontend.values import Value
from popc.frontend.walk import all_nodes, node_name, number_of
from popc.ir import Graph, Op, Recompute, Tensor
from popc.options import AutoRecomputation
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["RecomputeRequests"]

_ATTRIBUTE: Final = "__recompute_output_in_backward_pass"
# PopART's numbers; it keeps a fourth one for itself.
_VALUES: Final = (Recompute.UNDEFINED, Recompute.CHECKPOINT, Recompute.RECOMPUTE)
_LISTED: Final = 8  # nodes shown of many


@frozen
class RecomputeRequests:
    """The requests of the options, to which nodes of the model add.

    Attributes:
        auto: The method by which popc chooses, if it does.
        recompute: Names or patterns of tensors to compute once more.
        checkpoints: Names or patterns of tensors to keep, whatever else is said about them.
    """

    auto: AutoRecomputation = AutoRecomputation.NONE
    recompute: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    @property
    def _recomputes(self) -> bool:
        """True if anything is computed once more that nodes do not ask for."""
        return self.auto is not AutoRecomputation.NONE or bool(self.recompute)

    def checked(self, model: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> RecomputeRequests:
        """The wishes, if they fit the ``nodes`` of ``model`` that are going to be imported.

        Raises:
            OptionError: patterns name nothing, or wishes exclude each other or have no effect.
        """
        problems = [*self._unknown_names(model, nodes)]
        asking = [node_name(node) for node in all_nodes(nodes) if _asks(node)]
        if asking and self.auto is not AutoRecomputation.NONE:
            problems.append(
                f"auto_recomputation is {self.auto}, but nodes of the model ask for recomputation "
                f"themselves ({_listed(asking)}): use one of the two"
            )
        if self.checkpoints and not self._recomputes and not asking:
            problems.append(
                "checkpoints keeps tensors while others are recomputed, but nothing is: set "
                "auto_recomputation, or recompute"
            )
        if problems:
            raise OptionError(
                "recompute and checkpoints do not fit the model",
                subject="recompute",
                details=tuple(problems),
            )
        return self

    def _unknown_names(
        self, model: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]
    ) -> Iterator[str]:
        known = [name for node in all_nodes(nodes) for name in node.output if name]
        others = {name for node in model.node for name in node.output}
        others.update(info.name for info in model.input)
        others.update(tensor.name for tensor in model.initializer)
        for option, patterns in (("recompute", self.recompute), ("checkpoints", self.checkpoints)):
            for pattern in patterns:
                if any(_matches(name, [pattern]) for name in known):
                    continue
                if any(_matches(name, [pattern]) for name in others):
                    why = "is an input, a weight, or not needed to train: there is nothing to do"
                else:
                    why = f"does not exist{did_you_mean(pattern, known)}"
                yield f"{option}: {shown(pattern)!r} {why}"

    def mark(
        self, node: onnx.NodeProto, results: Sequence[Value | None], graph: Graph, added: int
    ) -> None:
        """Tell the ops of ``node``, the ``added`` newest of ``graph``, what is wished for.

        Raises:
            ModelError: the attribute of ``node`` has an unknown value.
        """
        wish = self._of(node)
        if wish is Recompute.RECOMPUTE:
            _set(graph.newest(max(added, 0)), wish)
        elif wish is Recompute.CHECKPOINT:
            # A node may be no op at all: PopART makes checkpoints of Identity.
            tensors = (value for value in results if isinstance(value, Tensor))
            _set((tensor.producer for tensor in tensors if tensor.producer is not None), wish)

    def _of(self, node: onnx.NodeProto) -> Recompute:
        if any(_matches(name, self.checkpoints) for name in node.output):
            return Recompute.CHECKPOINT
        if any(_matches(name, self.recompute) for name in node.output):
            return Recompute.RECOMPUTE
        number = _number(node)
        if number not in range(len(_VALUES)):
            raise ModelError(
                f"{_ATTRIBUTE} is {number}, but must be 1 to keep the results, or 2 to compute "
                "them once more"
            )
        return _VALUES[number]


def _number(node: onnx.NodeProto) -> int:
    return number_of(node, _ATTRIBUTE) or 0


def _asks(node: onnx.NodeProto) -> bool:
    return _number(node) == _VALUES.index(Recompute.RECOMPUTE)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(shown(name) for name in names[:_LISTED]) + more


def _set(ops: Iterable[Op], wish: Recompute) -> None:
    for op in ops:
        op.settings = replace(op.settings, recompute=wish)
