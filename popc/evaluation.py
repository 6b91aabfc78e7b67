"""The program that evaluates a model while another program of the same archive trains it."""

from __future__ import annotations

from dataclasses import replace

from popc.compiler import Compiled, compile_program
from popc.frontend import evaluation_model
from popc.options import evaluation_options
from popc.progress import Watch
from popc_runtime.errors import UsageError

__all__ = ["compile_evaluation"]


def compile_evaluation(trained: Compiled, watch: Watch) -> Compiled:
    """The program that computes the outputs of a model with the weights that ``trained`` trains.

    Normalisations use their running statistics, and nothing is dropped out.  Inputs that only the
    loss needs are gone.

    Raises:
        PopcError: see `compile_program`.
        UsageError: the program writes weights, which would change what is trained.
    """
    program = trained.planned.program
    loaded = evaluation_model(program.loaded)
    request = program.request
    inputs = {info.name for info in loaded.inputs}
    evaluation = replace(
        request,
        model=loaded,
        options=evaluation_options(request.options),
        shapes={name: shape for name, shape in request.shapes.items() if name in inputs},
        bind={name: value for name, value in request.bind.items() if name in inputs},
        outputs=(),
        training=None,
        variables=tuple(variable.name for variable in program.graph.variables),
    )
    compiled = compile_program(evaluation, loaded, watch)
    if any(op.op_type == "CopyVarUpdate" for op in compiled.planned.graph.ops):
        raise UsageError(
            "the model changes its own weights, so a program that evaluates it would train it",
            hint="compile the evaluation by itself, from a model that does not",
        )
    return compiled
