"""popc compiles ONNX models ahead of time into executable archives for an emulated IPU.

    archive = popc.compile("model.onnx", shapes={"x": (1, 3, 224, 224)})
    archive.save("model.popx")

The archive is run by the package ``popc_runtime``.
"""

from popc.api import compile_model as compile  # noqa: A004 - popc.compile is its name
from popc.api import make_options
from popc.archive import Archive
from popc.options import Options
from popc.progress import ProgressEvent, Stage
from popc_runtime import errors
from popc_runtime.errors import PopcError

__all__ = [
    "Archive",
    "Options",
    "PopcError",
    "ProgressEvent",
    "Stage",
    "compile",
    "errors",
    "make_options",
]
