"""Search for options by the cost model: nothing is run."""

from popc.study.tuning.journal import Journal, identity_of
from popc.study.tuning.output import effect_text, options_file
from popc.study.tuning.search import OBJECTIVES, Evaluator, Findings, pareto_front, search
from popc.study.tuning.tunables import TUNABLES, Dimension, Tunable, dimensions_of
from popc.study.tuning.tune import DEFAULT_BUDGET, Tuning, tune_request

__all__ = [
    "DEFAULT_BUDGET",
    "OBJECTIVES",
    "TUNABLES",
    "Dimension",
    "Evaluator",
    "Findings",
    "Journal",
    "Tunable",
    "Tuning",
    "dimensions_of",
    "effect_text",
    "identity_of",
    "options_file",
    "pareto_front",
    "search",
    "tune_request",
]
