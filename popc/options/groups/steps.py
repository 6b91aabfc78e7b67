"""Options about what one run of the program processes, and returns."""

from __future__ import annotations

from popc.options.anchors import Anchor, AnchorKind
from popc.options.kinds import Table, Whole
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["StepOptions"]


@inheritable
class StepOptions:
    """The batches that one run of the program processes, and the values that it returns."""

    anchors: FrozenTable[Anchor] = option(
        Table(AnchorKind(), "from tensor names to return types"),
        FrozenTable(),
        "Values of an output that a step returns. A table from tensor name to all, final, "
        "sum or every_n. A name that is no output of the model becomes one. In TOML: "
        '[anchors] y = "final", z = { type = "every_n", n = 2 }; with --set: anchors.y=final, '
        "anchors.z=every_n:2. A sum adds in the element type of the output, or in float32 if "
        "that is float16 or bfloat16, and returns that; sum:float64 (or another type) adds and "
        "returns that type.",
    )
    batch_size: int = option(
        Whole(),
        0,
        "Size of the first dimension of inputs whose model leaves it open; 0: what --dim "
        "and --shape say.",
    )
    batches_per_step: int = option(
        Whole(low=1),
        1,
        "Number of batches that one run of the program processes. Inputs and outputs get a leading "
        "dimension of this size if it is larger than 1.",
        popart="batchesPerStep",
    )
    default_anchor: Anchor = option(
        AnchorKind(), Anchor(), "Return type of the outputs that anchors does not name."
    )

    def anchor(self, output: str) -> Anchor:
        """The values of an output that a step returns."""
        return self.anchors.get(output, self.default_anchor)
