"""The weights that the patterns of an optimizer mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from popc.optimizers.spec import OptimizerSpec, option_error
from popc.optimizers.values import Value
from popc.options.suggest import did_you_mean
from popc_runtime.format import DType

__all__ = ["Resolution"]


class Resolution:
    """The settings of an optimizer for weights of these names.

    Attributes:
        clip_groups: The weights of each clip norm, in order of the clip norms.
    """

    def __init__(self, spec: OptimizerSpec, weights: Sequence[str]) -> None:
        """Match all patterns.

        Raises:
            OptionError: lists patterns that match no weight, and weights in two clip groups.
        """
        problems = list(_problems(spec, weights))
        if problems:
            raise option_error(problems)
        self._spec = spec
        self._specific = {
            weight: [
                i for i, specific in enumerate(spec.specific) if _matches(weight, specific.tensors)
            ]
            for weight in weights
        }
        self.clip_groups = [_clipped(clip.tensors, weights) for clip in spec.clip_norms]

    def source(self, hyper_parameter: str, weight: str) -> int | None:
        """The entry of ``specific`` that gives a weight its value; ``None`` for that of all."""
        for index in reversed(self._specific[weight]):
            if hyper_parameter in self._spec.specific[index].values:
                return index
        return None

    def accum_type(self, weight: str) -> DType | None:
        """The type to accumulate the gradients of a weight in; ``None``: that of the weight."""
        types = [self._spec.specific[index].accum_type for index in self._specific[weight]]
        return next((found for found in reversed(types) if found), self._spec.accum_type)

    def functions(self, weight: str) -> list[str]:
        """The names of the functions that change the gradient of a weight, in order."""
        maps = self._spec.gradient_maps
        return [m.function for m in maps if not m.tensors or _matches(weight, m.tensors)]

    def value(self, hyper_parameter: str, weight: str) -> Value:
        """The value of a hyper-parameter for a weight."""
        source = self.source(hyper_parameter, weight)
        if source is None:
            return self._spec.value(hyper_parameter)
        return self._spec.specific[source].values[hyper_parameter]

    def group(self, source: int | None) -> str:
        """The tensors of an entry of ``specific`` as text; "default" for all others."""
        return "default" if source is None else ", ".join(self._spec.specific[source].tensors)

    def label(self, sources: Sequence[int | None]) -> str:
        """The part that distinguishes names of scalars with these sources, in PopART's style."""
        own = sorted({source for source in sources if source is not None})
        if not own:
            return "default___FLOAT"
        return "specific___" + ",".join(
            pattern for index in own for pattern in self._spec.specific[index].tensors
        )


def _matches(weight: str, patterns: Sequence[str]) -> bool:
    return any(weight == pattern or fnmatchcase(weight, pattern) for pattern in patterns)


def _clipped(patterns: Sequence[str], weights: Sequence[str]) -> list[str]:
    return [weight for weight in weights if not patterns or _matches(weight, patterns)]


def _problems(spec: OptimizerSpec, weights: Sequence[str]) -> Iterator[str]:
    lists = [
        *((f"specific[{index}]", specific.tensors) for index, specific in enumerate(spec.specific)),
        *((f"clip_norm[{index}]", clip.tensors) for index, clip in enumerate(spec.clip_norms)),
        *((f"gradient_map[{index}]", m.tensors) for index, m in enumerate(spec.gradient_maps)),
    ]
    for where, patterns in lists:
        for pattern in patterns:
            if not any(_matches(weight, [pattern]) for weight in weights):
                advice = did_you_mean(pattern, weights)
                yield (
                    f"optimizer.{where}.tensors: {pattern!r} matches no trained weight"
                    + (f": {advice}" if advice else "")
                )
    groups = [_clipped(clip.tensors, weights) for clip in spec.clip_norms]
    for weight in weights:
        found = [f"clip_norm[{index}]" for index, group in enumerate(groups) if weight in group]
        if len(found) > 1:
            yield f"{weight!r} is in {' and in '.join(found)}: its gradient can have one bound only"
