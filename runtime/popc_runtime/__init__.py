"""Runs the executable archives that popc compiles from ONNX models.

model = popc_runtime.load("model.popx")
results = model.run({"x": array})
"""

from __future__ import annotations

from popc_runtime import custom, errors
from popc_runtime.errors import PopcError
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    __version__: str

    from popc_runtime.cache.loading import load_cached
    from popc_runtime.data.streams.seals import SealedFeed
    from popc_runtime.executable import Executable, RunStats
    from popc_runtime.format import (
        DType,
        Limits,
        Manifest,
        StreamSpec,
        TensorSpec,
        TrainingSpec,
        VariableRole,
        VariableSpec,
        probe,
    )
    from popc_runtime.kernels.core.printing import set_print_hook
    from popc_runtime.loader import load
    from popc_runtime.session import Session

__all__ = [
    "DType",
    "Executable",
    "Limits",
    "Manifest",
    "PopcError",
    "RunStats",
    "SealedFeed",
    "Session",
    "StreamSpec",
    "TensorSpec",
    "TrainingSpec",
    "VariableRole",
    "VariableSpec",
    "__version__",
    "custom",
    "errors",
    "load",
    "load_cached",
    "probe",
    "set_print_hook",
]

# Programs start sooner without what they do not use.
__getattr__ = lazy_names(
    __name__,
    {
        "DType": "popc_runtime.format",
        "Executable": "popc_runtime.executable",
        "Limits": "popc_runtime.format",
        "Manifest": "popc_runtime.format",
        "RunStats": "popc_runtime.executable",
        "SealedFeed": "popc_runtime.data.streams.seals",
        "Session": "popc_runtime.session",
        "StreamSpec": "popc_runtime.format",
        "TensorSpec": "popc_runtime.format",
        "TrainingSpec": "popc_runtime.format",
        "VariableRole": "popc_runtime.format",
        "VariableSpec": "popc_runtime.format",
        "load": "popc_runtime.loader",
        "load_cached": "popc_runtime.cache.loading",
        "probe": "popc_runtime.format",
        "set_print_hook": "popc_runtime.kernels.core.printing",
    },
    distribution="popc-runtime",
)
