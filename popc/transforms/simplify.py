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
from popc.transforms.rules.rule import Rewrite
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
        return _rewrite(graph, op, _by_type(self.rules).get(op.op_type, []))


class LateSimplify(Simplify):
    """Local rules once more, with those that must wait for other passes."""

    late: ClassVar[bool] = True


def _apply(graph: Graph, rules: Sequence[LocalRule], names: Sequence[str]) -> int:
    """One sweep; the number of changes."""
    of_type = _by_type(rules)
    changes = 0
    with disguised(graph, *names):
        for nested in reversed(list(graph.walk())):
            for op in nested.topological():
                wanted = of_type.get(op.op_type)
                if wanted is not None and (not changes or op in nested):
                    changes += _rewrite(nested, op, wanted)
    return changes


def _by_type(rules: Sequence[LocalRule]) -> dict[str, list[tuple[str, Rewrite]]]:
    """By type of op, the names of the rules for it, and what they do."""
    found: dict[str, list[tuple[str, Rewrite]]] = defaultdict(list)
    for rule in rules:
        for op_type, rewrite in rule.rewrites.items():
            found[op_type].append((rule.name, rewrite))
    return found


def _rewrite(graph: Graph, op: Op, rules: Sequence[tuple[str, Rewrite]]) -> bool:
    for name, rewrite in rules:
        replacement = rewrite(graph, op)
        if replacement is not None:
            try:
                graph.replace_op(op, [replacement])
            except AssertionError as error:
                raise AssertionError(f"rule {name}: {error}") from error
            return True
    return False
