"""Print docs/popart.md: what programs written for PopART find here.

`make docs` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from popc.options.dialects.popart_patterns import BUILT_IN, ELSEWHERE
from popc.options.dialects.popart_patterns import PATTERNS as RULES
from popc.popart import Patterns, PatternsLevel
from popc.popart.engine_options import ENGINE_OPTIONS, GCL_OPTIONS
from popc.popart.options_table import OPTIONS, Treatment
from popc.popart.patterns import PATTERNS

__all__ = ["popart_page"]

_INTRODUCTION = """\
# Programs written for PopART

The tables are made from the code by `make docs`.

`pip install popc popc-popart` gives the module `popart`: `import popart` finds `popc.popart`, and \
a program that builds its model with `popart.Builder`, makes sessions, prepares devices and feeds \
them with `PyStepIO` runs as it is. Names, defaults, shapes, names of tensors, classes of errors \
and the words by which their texts begin are those of PopART 3.4.

```python
import numpy as np
import popart

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
w = builder.addInitializedInputTensor(np.ones((3, 4), np.float32))
y = builder.aiOnnx.matmul([x, w])
session = popart.InferenceSession(
    builder.getModelProto(), popart.DataFlow(1, [y]), popart.DeviceManager().createCpuDevice()
)
session.prepareDevice()
anchors = session.initAnchorArrays()
session.run(popart.PyStepIO({x: np.ones((2, 3), np.float32)}, anchors))
print(anchors[y])
```

[samples/popart_cnn.py](../samples/popart_cnn.py) trains a convolutional network, and \
[samples/popart_bert.py](../samples/popart_bert.py) a small BERT, on two replicas of two IPUs \
with pipelining, accumulation and recomputation; both compare with PyTorch. \
[samples/popart_operators.py](../samples/popart_operators.py) runs what PopART's reference says by \
example of slices, calls, conditions and loops, and \
[samples/popart_custom_operator.py](../samples/popart_custom_operator.py) trains through an \
operator of its own.

PopART's authors wrote 692 functions of tests for this interface. `make popart-tests \
POPART_TESTS=FOLDER` runs the 677 that can be collected: 643 pass, and it says of every other one \
why it does not. Most need code generators, planners or profilers of Poplar's, or their authors \
skip them; with a few popc does something else. Four compare with packages that have to be built \
from source; without `make popart-extensions`, which does that, they are left out.

That takes 4.4 minutes of CPU, 8 minutes on two cores that had other things to do: nearly half of \
it in tests of operators, a quarter in those of sessions and devices, a sixth in those that \
compare optimizers in hundreds of combinations.

`prepareDevice` of a graph of ten ops takes 21 ms of CPU (41 to 45 the first time in a process), \
and a Builder 0.2 ms for each node: 1.8 s for 10,000. From the cache sessions start in less than a \
tenth of the time that it takes to compile: of a BERT in 2 to 6 %, of a small convolutional \
network in 5 to 7 %, of a perceptron of three layers in 9 to 10 % (8 ms instead of 88), because \
some 7 ms do not depend on the model; the first of a process takes 15 ms more. In all \
cases the first run binds the kernels (`python -m tools.popart_figures`).

## What is the same

* The builder: opsets 6 to 11 of ai.onnx and ai.graphcore, names of tensors, scopes, annotations, \
subgraphs, types while the model is built, external data.
* Sessions: anchors in every return type with PopART's dimensions, wrap-around of `PyStepIO`, \
callbacks, weights in two steps, `modelToHost`, `resetHostWeights`, optimizers and their \
replacement, replicas, groups of replicas, pipelines, execution phases, recomputation.
* Every device: there is an emulated machine of 16 IPUs, whose sets can be enumerated, acquired, \
attached and run out of; replication also works on models of IPUs, where PopART refuses it.

## What differs

* Programs run on the host, emulated. Cycles and memory are estimates; `getSummaryReport` shows \
them, and `getReport` gives them as data, in place of an object of `pva`.
* Executables are archives of popc, not PopEF, whatever their names end with.
* Compiled operators and codelets cannot be loaded; `popart.registerCustomOp` registers an \
operator in Python, see [custom.md](custom.md).
* Training in a pipeline without gradient accumulation updates weights after each micro-batch; \
PopART's gradients come from weights that later micro-batches have changed meanwhile, popc's do not.
* An anchored weight shows, with accumulation, what the micro-batches of a batch have seen.
* A variable with `AllReduceReplicas` is read back as the mean over each group.
* Replicas that divide sums of gradients among them add up the gradients of each micro-batch \
over the replicas first: another order of rounding.
* `_serializeIr` has an entry for each op as PopART names them, in the order in which they run; \
names of intermediate results of the optimizer differ. With outlining, single ops that are alike \
are calls of `call_subgraph(N)` there, as PopART makes them; popc shares their code without a graph.
* Tests of memory look at tensors: a program that needs more bytes than the IPUs of an emulated \
device have raises `OutOfMemoryException` in `prepareDevice`.
* A new session starts with the random seed of the clock, as in PopART; random numbers are others \
than Poplar's.

## By how much results can differ

PopART's results depend on the hardware: on the order of sums, and on units that multiply with \
rounded operands. popc computes float32 with float32, and float16 with sums in float32 unless \
partials are half; see [numerics.md](numerics.md). The samples, trained for some steps in float32, \
agree with PyTorch to about 1e-5. The loss of a label that names no class is -log(1e-7), as in \
PopART.

## Environment

`POPART_LOG_LEVEL`, `POPART_LOG_DEST`, `POPART_LOG_CONFIG` and `POPART_LOG_FORMAT` steer the log, \
`POPART_DOT_CHECKS` asks for drawings, `POPART_CACHE_DIR` and `POPXL_CACHE_DIR` switch the cache \
of programs on. A session that starts from the cache says so in the log, at level INFO; a damaged \
entry is compiled anew, with a warning.
"""

_OPTIONS = """
## SessionOptions

A member at its default is accepted always. Otherwise: **mapped**, an option of popc does the \
same; **session**, the session itself does it; **always**, popc always does it, or never needs it; \
**no effect**, accepted with one warning in a process; **refused**, with the reason, when the \
session is made.

| member | default | | here |
|---|---|---|---|"""

_ENGINE = """
## Engine options

Of `SessionOptions.engineOptions`. A name that Poplar does not know is a `poplar_exception` when \
the device is prepared. Of `gclOptions` there are {gcl}; collectives need none of them.

| option | | here |
|---|---|---|"""

_PATTERNS = """
## Patterns

"mandatory" cannot be switched off, "default" is on at the default level, "off" needs \
`PatternsLevel.All` or its name. [patterns.md](patterns.md) says what popc's rules do.

| pattern | | here |
|---|---|---|"""

_WORDS = {
    Treatment.MAPPED: "mapped",
    Treatment.SESSION: "session",
    Treatment.ALWAYS: "always",
    Treatment.NO_EFFECT: "no effect",
    Treatment.REFUSED: "refused",
}


def popart_page() -> str:
    """The page as Markdown."""
    options = (
        f"| `{row.name}` | {_default(row.default())} | {_WORDS[row.treatment]} | {row.why} |"
        for row in OPTIONS.values()
    )
    engine = (
        f"| `{name}` | {_WORDS[treatment]} | {why} |"
        for name, (treatment, why) in sorted(ENGINE_OPTIONS.items())
    )
    gcl = " and ".join(f"`{name}`" for name in GCL_OPTIONS)
    parts = [_INTRODUCTION.rstrip(), _OPTIONS, *options, _ENGINE.format(gcl=gcl), *engine]
    return "\n".join([*parts, _PATTERNS, *_patterns(), ""])


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if value is None or isinstance(value, bool | int | float | str):
        return f"`{value!r}`"
    if isinstance(value, list | dict | set):
        return ", ".join(f"`{getattr(item, 'name', item)}`" for item in value) or "empty"
    return f"`{type(value).__name__}()`"


def _patterns() -> Iterator[str]:
    minimal, usual = Patterns(PatternsLevel.Minimal), Patterns()
    here = {name: f"`{'`, `'.join(rules)}`" for name, rules in RULES.items()}
    here |= {**BUILT_IN, **ELSEWHERE}
    for name in sorted(PATTERNS):
        kind = "default" if usual.isPatternEnabled(name) else "off"
        kind = "mandatory" if minimal.isPatternEnabled(name) else kind
        yield f"| {name} | {kind} | {here.get(name, 'the import of a model does it')} |"
    yield "| InPlace | default | `enable_inplace` |"


if __name__ == "__main__":
    print(popart_page(), end="")
