"""The one schema of options: every option that exists, with its type, default and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from popc.options.anchors import Anchor
from popc.options.annotations import Rule
from popc.options.locations import words_of
from popc.options.report_options import ReportOptions
from popc.options.schema import OptionSpec, described, spec_of
from popc.options.table import FrozenTable
from popc_runtime.format import Compression, OptionSetting, OptionValue, Origin

__all__ = ["SCHEMA", "Options", "describe_options"]

_NO_ANCHORS: Final[FrozenTable[Anchor]] = FrozenTable()
_NO_ORIGINS: Final[FrozenTable[Origin]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class Options(ReportOptions):
    """The effective options of a compilation, one attribute each.

    ``origins`` says where values come from; an option that it does not list has its default.
    """

    accumulation_and_replication_reduction_type: str = field(
        default="sum",
        metadata=described(
            "choice",
            "Whether the gradients of the micro-batches of a batch, and of replicas, are added up "
            "or averaged.",
            choices=("sum", "mean"),
            popart="accumulationAndReplicationReductionType",
        ),
    )
    accumulation_factor: int = field(
        default=1,
        metadata=described(
            "int",
            "How many micro-batches add up their gradients before the weights are updated. Inputs "
            "and outputs get a dimension of this size, after that of batches_per_step, if it is "
            "larger than 1. Training only.",
            low=1,
            popart="accumulationFactor",
        ),
    )
    anchors: FrozenTable[Anchor] = field(
        default=_NO_ANCHORS,
        metadata=described(
            "anchors",
            "Which values of an output a step returns. A table from tensor name to all, final, "
            "sum or every_n. A name that is no output of the model becomes one. In TOML: "
            '[anchors] y = "final", z = { type = "every_n", n = 2 }; with --set: anchors.y=final, '
            "anchors.z=every_n:2. As in PopART, sum adds in the element type of the output, so "
            "sums of float16 end at 65504; sum:float32 (or another type) adds and returns float32.",
        ),
    )
    annotate: tuple[Rule, ...] = field(
        default=(),
        metadata=described(
            "rules",
            "What to say of nodes of the model without editing it. A list of tables, each with "
            "selectors, of which all must fit (nodes: a name or pattern; op_type; output: a tensor "
            "that the node computes), and annotations: schedule_priority (a number; ops with a "
            "higher one run as early as they can), exclude_patterns (passes that leave the ops as "
            "they are), recompute (checkpoint or recompute, in the backward pass), partials_type "
            "or output_type (float or half), serialize_matmul_mode with serialize_matmul_factor, "
            "inplace_op_names with inplace_op_priorities (see docs/products.md), virtual_graph and "
            "pipeline_stage (whole numbers: see docs/pipelining.md). The names of "
            "PopART's attributes, such as __schedule_priority, are understood too. In TOML: "
            '[[annotate]] nodes = "block*" schedule_priority = 1.',
        ),
    )
    auto_recomputation: str = field(
        default="none",
        metadata=described(
            "choice",
            "Which results of the forward pass the backward pass computes once more. That takes "
            "less memory than keeping them, and more time. Standard keeps the results that are "
            "live where the forward pass needs the least memory, at intervals that get shorter, "
            "and computes the others; norm_only computes those of normalisations only, "
            "recompute_all computes everything but checkpoints, and pipeline what the stages of a "
            "pipeline compute, but for the last one. Random numbers are always kept. Training "
            "only, but for pipeline.",
            choices=("none", "standard", "norm_only", "recompute_all", "pipeline"),
            synonyms=(("norecompute", "none"),),
            popart="autoRecomputation",
        ),
    )
    batches_per_step: int = field(
        default=1,
        metadata=described(
            "int",
            "How many batches one run of the program processes. Inputs and outputs get a leading "
            "dimension of this size if it is larger than 1.",
            low=1,
            popart="batchesPerStep",
        ),
    )
    checkpoints: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "patterns",
            "Tensors that are always kept for the backward pass, by name or pattern (block*.out). "
            "They are kept whatever recompute or auto_recomputation say. Training only.",
        ),
    )
    compression: str = field(
        default=Compression.DEFAULT.value,
        metadata=described(
            "choice",
            "How much time to spend on a small archive.",
            choices=tuple(one.value for one in Compression),
        ),
    )
    constant_weights: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Whether the weights of a program that does not train are constants. If not, they can "
            "be read and written between runs, as those of a training program always can, and by "
            "the model itself (CopyVarUpdate, running statistics).",
            popart="constantWeights",
        ),
    )
    decompose_grad_sum: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Add the gradients of one tensor up as soon as each is known. Otherwise all that the "
            "tensor has from several uses are added at once: fewer ops, but more memory.",
            popart="decomposeGradSum",
        ),
    )
    default_anchor: Anchor = field(
        default=Anchor(),
        metadata=described("anchor", "Return type of the outputs that anchors does not name."),
    )
    disabled_passes: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "names",
            "Passes to leave out. The results stay the same; the program gets larger or slower.",
        ),
    )
    enable_floating_point_checks: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Stop at the first op whose result shows a floating-point exception, and name it. "
            "floating_point_exceptions says which exceptions count. Runs take longer: they do "
            "without native kernels, so that results may differ in the last bit. Checks can also "
            "be switched on or off when the archive is loaded.",
            popart="enableFloatingPointChecks",
        ),
    )
    enable_inplace: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Let results take over the memory of operands that are not needed any more.",
        ),
    )
    enable_stochastic_rounding: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Round float16 and bfloat16 results at random to one of their two neighbours. The "
            "nearer one is more likely, so that the mean is exact, and small updates of weights "
            "are not lost. The seed of the run decides; what is computed when the archive is "
            "loaded is rounded to nearest.",
            popart="enableStochasticRounding",
        ),
    )
    ensure_fp32_loss_scale_tensor: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Compute a float16 loss in float32, so that the loss scale may be larger than 65504. "
            "Training only.",
            popart="ensureFp32LossScaleTensor",
        ),
    )
    floating_point_exceptions: tuple[str, ...] = field(
        default=("div0", "invalid", "overflow"),
        metadata=described(
            "names",
            "What enable_floating_point_checks looks for. Invalid is a NaN of operands without "
            "any, div0 an infinity of an op with a pole, such as Div or Log, of finite operands, "
            "and overflow any other infinity of finite operands. With nan_on_overflow, finite "
            "results that are too large for float16 or bfloat16 become NaN rather than infinite.",
            choices=("div0", "invalid", "nan_on_overflow", "overflow"),
        ),
    )
    fold_limit_bytes: int = field(
        default=65536,
        metadata=described(
            "int",
            "Bytes by which computing a constant at compile time may enlarge the archive. What "
            "would grow more is computed when the archive is loaded.",
        ),
    )
    loose_threshold_at_peak: int = field(
        default=8000,
        metadata=described(
            "int",
            "How many bytes of weights may wait to be updated where memory is tightest. Where the "
            "backward pass needs less memory, as many more may wait. For merge_var_update = "
            "auto_loose.",
            popart="looseThresholdAtPeak",
        ),
    )
    mean_accumulation_and_replication_reduction_strategy: str = field(
        default="post",
        metadata=described(
            "choice",
            "How gradients are averaged. Post adds them up and divides once; running keeps the "
            "mean of those seen so far, which does not overflow in half precision.",
            choices=("post", "running"),
            popart="meanAccumulationAndReplicationReductionStrategy",
        ),
    )
    memory_format: str = field(
        default="auto",
        metadata=described(
            "choice",
            "How images between convolutions lie in memory. Pixel by pixel where all ops that make "
            "or read them work with that, or plane by plane: then only those between convolutions "
            "of bytes lie pixel by pixel, under the same conditions. Shapes stay the same, and so "
            "do results but for the order in which a convolution adds up. Native kernels are "
            "faster with pixels, those of numpy with planes. auto is channels_first for training "
            "steps, which gain nothing and whose results then do not depend in the last bit on "
            "options that move ops elsewhere, and channels_last for other programs.",
            choices=("auto", "channels_first", "channels_last"),
        ),
    )
    merge_var_update: str = field(
        default="off",
        metadata=described(
            "choice",
            "Whether weights whose updates have the same arithmetic are updated together. That is "
            "fewer ops, which pays if there are many small weights, but gradients live longer. All "
            "merges whatever can be merged; auto_tight makes groups of "
            "merge_var_update_mem_threshold bytes, for which weights are cut; auto_loose merges "
            "whole weights, as far as memory allows (see loose_threshold_at_peak). Results are the "
            "same. Not for Lamb, whose steps depend on norms of single weights. Training only.",
            choices=("off", "all", "auto_tight", "auto_loose"),
            synonyms=(("none", "off"), ("autotight", "auto_tight"), ("autoloose", "auto_loose")),
            popart="mergeVarUpdate",
        ),
    )
    merge_var_update_mem_threshold: int = field(
        default=1_000_000,
        metadata=described(
            "int",
            "How many bytes of weights merge_var_update puts together at most, unless it is all.",
            low=1,
            popart="mergeVarUpdateMemThreshold",
        ),
    )
    pack_weights: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Store weights of products and convolutions in the order in which native kernels read "
            "them. They are used where they lie in the file then, instead of being packed each "
            "time that it is loaded. Results are the same; a runtime without native kernels "
            "unpacks them.",
        ),
    )
    partials_type_matmuls: str = field(
        default="float",
        metadata=described(
            "choice",
            "In which type products of float16 matrices add up. With half, the sum is rounded to "
            "float16 after every 16 products of an element, which is slow here; with float, once "
            "at the end. The attribute __partials_type of a node has precedence, and is understood "
            "by convolutions too: they add up 16 channels at all places of the window, and the "
            "gradient of their weights one sample at a time.",
            choices=("float", "half"),
            popart="partialsTypeMatMuls",
        ),
    )
    recompute: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "patterns",
            "Tensors that the backward pass computes once more, by name or pattern (block*). What "
            "the nodes that make them compute on the way belongs to it. The attribute "
            "__recompute_output_in_backward_pass of a node says the same. Not together with "
            "auto_recomputation. Training only.",
        ),
    )
    verify_ir: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Check the graph after every pass, and schedule and memory plan with independent "
            "checkers.",
        ),
    )
    weights: str = field(
        default="compressed",
        metadata=described(
            "choice",
            "How weights are stored. Compressed makes a small archive; mmap stores them raw and "
            "page-aligned, so that they are mapped instead of read and processes share them.",
            choices=("compressed", "mmap"),
        ),
    )
    winograd: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Let native kernels compute 3 x 3 convolutions by Winograd's algorithm. They do where "
            "that is faster. Results then differ from sums of products by up to about five "
            "millionths of the largest one, and an infinite or undefined element makes all results "
            "of its tiles of 4 x 4 undefined.",
        ),
    )
    origins: FrozenTable[Origin] = _NO_ORIGINS

    def anchor(self, output: str) -> Anchor:
        """Which values of an output a step returns."""
        return self.anchors.get(output, self.default_anchor)

    def origin(self, name: str) -> Origin:
        """Where the value of an option comes from."""
        return self.origins.get(name, Origin.DEFAULT)

    def to_manifest(self) -> tuple[OptionSetting, ...]:
        """Every effective value with its origin, sorted by name."""
        return tuple(
            OptionSetting(spec.name, _plain(getattr(self, spec.name)), self.origin(spec.name))
            for spec in SCHEMA
        )


def _schema() -> tuple[OptionSpec, ...]:
    specs = [spec_of(one) for one in fields(Options)]
    return tuple(sorted(filter(None, specs), key=lambda spec: spec.name))


SCHEMA: Final = _schema()


def describe_options(pass_names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every option as plain data, for listings and for machines."""
    return [
        {
            "name": spec.name,
            "type": spec.type,
            "default": _plain(spec.default),
            "choices": list(pass_names if spec.name == "disabled_passes" else spec.choices),
            "range": [spec.low, spec.high] if spec.type in ("int", "float") else [],
            "summary": spec.help.split(". ")[0].rstrip("."),
            "help": spec.help,
            "popart": spec.popart,
            "variable": spec.variable,
        }
        for spec in SCHEMA
    ]


def _entry(value: Any) -> OptionValue:
    """An entry of a table without our classes."""
    if isinstance(value, FrozenTable):
        return words_of(value)
    return value if isinstance(value, bool | int | float) else str(value)


def _plain(value: Any) -> OptionValue:
    """The value without our classes."""
    if isinstance(value, FrozenTable):
        return tuple((key, _entry(one)) for key, one in value.items())
    if isinstance(value, Anchor):
        return str(value)
    if isinstance(value, tuple) and any(isinstance(one, Rule) for one in value):
        return tuple(map(str, value))
    plain: OptionValue = value
    return plain
