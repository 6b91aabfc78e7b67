"""popc compiles ONNX models ahead of time into executable archives for an emulated IPU.

    archive = popc.compile("model.onnx", shapes={"x": (1, 3, 224, 224)})
    archive.save("model.popx")

The archive is run by the package ``popc_runtime``.  In one step, compiled when it is needed:

    model = popc.load("model.onnx", shapes={"x": (1, 3, 224, 224)})
    results = model.run({"x": array})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from popc_runtime import custom, errors
from popc_runtime.errors import PopcError
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    __version__: str

    from popc.api import estimate_model as estimate
    from popc.archive import Archive
    from popc.caching.models import compile_model as compile  # noqa: A004 - popc.compile is its name
    from popc.caching.models import load_model as load
    from popc.cost import CostReport
    from popc.options import Options
    from popc.progress import ProgressEvent, Stage, show_progress
    from popc.request import make_options
    from popc.study.advice import explain_model as explain
    from popc.trained.estimator import Estimator
    from popc.trained.export import export_onnx, load_weights
    from popc.trained.hooks import TrainingHook
    from popc.trained.optimizer import update_optimizer
    from popc.trained.step_log import StepLog

__all__ = [
    "Archive",
    "CostReport",
    "Estimator",
    "Options",
    "PopcError",
    "ProgressEvent",
    "Stage",
    "StepLog",
    "TrainingHook",
    "__version__",
    "compile",
    "custom",
    "errors",
    "estimate",
    "explain",
    "export_onnx",
    "load",
    "load_weights",
    "make_options",
    "show_progress",
    "update_optimizer",
]

# The command line imports this package, and `popc run` must not pay for importing the compiler and
# onnx.
__getattr__ = lazy_names(
    __name__,
    {
        "Archive": "popc.archive",
        "CostReport": "popc.cost",
        "Estimator": "popc.trained.estimator",
        "Options": "popc.options",
        "ProgressEvent": "popc.progress",
        "Stage": "popc.progress",
        "StepLog": "popc.trained.step_log",
        "TrainingHook": "popc.trained.hooks",
        "compile": "popc.caching.models:compile_model",
        "estimate": "popc.api:estimate_model",
        "explain": "popc.study.advice:explain_model",
        "export_onnx": "popc.trained.export",
        "load": "popc.caching.models:load_model",
        "load_weights": "popc.trained.export",
        "make_options": "popc.request",
        "show_progress": "popc.progress",
        "update_optimizer": "popc.trained.optimizer",
    },
    distribution="popc",
)
