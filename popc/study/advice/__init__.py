"""The reasons why a program does not fit its target, and the changes that would make it fit."""

from popc.study.advice.change import Change
from popc.study.advice.diagnosis import ChipState, Diagnosis, Holder, Share, diagnose
from popc.study.advice.explain import DEFAULT_BUDGET, Explanation, explain_model, explain_request
from popc.study.advice.search import Advice, Finding, Ladder, OnFinding, find_fixes, ignore
from popc.study.advice.situation import Situation
from popc.study.advice.toml import format_toml, format_value
from popc.study.advice.trial import Outcome, Trial, Workshop, outcome_of, refusal_of
from popc.study.advice.wins import Win
from popc.study.advice.workers import Pool, available_cores, open_pool

__all__ = [
    "DEFAULT_BUDGET",
    "Advice",
    "Change",
    "ChipState",
    "Diagnosis",
    "Explanation",
    "Finding",
    "Holder",
    "Ladder",
    "OnFinding",
    "Outcome",
    "Pool",
    "Share",
    "Situation",
    "Trial",
    "Win",
    "Workshop",
    "available_cores",
    "diagnose",
    "explain_model",
    "explain_request",
    "find_fixes",
    "format_toml",
    "format_value",
    "ignore",
    "open_pool",
    "outcome_of",
    "refusal_of",
]
