"""Apply the local rules: remove ops that change nothing, and join those that follow each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from popc.ir import Graph, Op
from popc.transforms.base import RewritePass, disguised
from popc.transforms.context import PassContext
from popc.transforms.patterns import chosen_rules
from popc.transforms.rules import RULES, LocalRule
from popc_runtime.ground.frozen import frozen

__all__ = ["LateSimplify", "Simplify"]


@frozen
class Simplify(RewritePass):
    """Identities disappear; a reshape of a reshape, or transpose of a transpose, becomes one.

    Before::

        %a = Transpose(%x) perm=[1, 0]
        %b = Transpose(%a) perm=[1, 0]
        %c = Mul(%b, float32(1.0))

    After: every use of ``%c`` reads ``%x``.
    """

    name: ClassVar[str] = "simplify"
    level: ClassVar[str] = ""  # its rules have levels of their own
    late: ClassVar[bool] = False
    rules: tuple[LocalRule, ...] = RULES

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(
            chosen_rules(context.options, late=cls.late, before_gradients=context.before_gradients)
        )

    def run(self, graph: Graph) -> int:
        """Try every rule on every op, but none on ops that exclude it, or as their neighbours."""
        excluded = {
            name
            for nested in graph.walk()
            for op in nested.ops
            for name in op.settings.exclude_patterns
        }
        common = [rule for rule in self.rules if rule.name not in excluded]
        special = [rule for rule in self.rules if rule.name in excluded]
        return sum(_apply(graph, rules, names) for names, rules in self._sweeps(common, special))

    def _sweeps(
        self, common: Sequence[LocalRule], special: Sequence[LocalRule]
    ) -> Iterator[tuple[tuple[str, ...], Sequence[LocalRule]]]:
        """Rules that run together, with the names by which an op excludes them."""
        yield (self.name,), common
        for rule in special:
            yield (self.name, rule.name), (rule,)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Try the rules of the op's type."""
        return _rewrite(graph, op, self.rules)


class LateSimplify(Simplify):
    """Local rules once more, with those that must wait for other passes."""

    late: ClassVar[bool] = True


def _apply(graph: Graph, rules: Sequence[LocalRule], names: Sequence[str]) -> int:
    """One sweep; the number of changes."""
    of_type: dict[str, list[LocalRule]] = defaultdict(list)
    for rule in rules:
        for op_type in rule.rewrites:
            of_type[op_type].append(rule)
    changes = 0
    with disguised(graph, *names):
        for nested in reversed(list(graph.walk())):
            for op in nested.topological():
                if op.op_type in of_type and op in nested:
                    changes += _rewrite(nested, op, of_type[op.op_type])
    return changes


def _rewrite(graph: Graph, op: Op, rules: Sequence[LocalRule]) -> bool:
    for rule in rules:
        rewrite = rule.rewrites.get(op.op_type)
        replacement = rewrite(graph, op) if rewrite else None
        if replacement is not None:
            try:
                graph.replace_op(op, [replacement])
            except AssertionError as error:
                raise AssertionError(f"rule {rule.name}: {error}") from error
            return True
    return False
