"""Options about models that are not plain ONNX."""

from __future__ import annotations

from popc.options.kinds import PathName, Whole
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["ModelOptions"]


@inheritable
class ModelOptions:
    """The conversion of models of other frameworks; archives do not record it."""

    converter_python: str = option(
        PathName(),
        "",
        "Python interpreter that converts models of other frameworks to ONNX. It runs in a process "
        "of its own. Its environment has the framework and its converter: TensorFlow or Keras and "
        "tf2onnx, Paddle and paddle2onnx, PyTorch (and transformers) and onnxscript. Models of "
        "strangers may make a framework run code of theirs. On the command line also "
        "--converter-python PATH.",
        recorded=False,
    )
    nchwc_block_size: int = option(
        Whole(high=16),
        0,
        "Channels in a block of filters in a model that onnxruntime has optimised for one kind of "
        "processor. 16 for processors with AVX-512 and for Arm, 8 for others; 0: as the file "
        "tells, which it does if some number of channels is no multiple of 16, or else as this "
        "processor has them, with a note. Such models have operators of com.microsoft.nchwc.",
    )
    onnx_folder: str = option(
        PathName(),
        "",
        "Folder that keeps the ONNX models which converter_python makes. By default it is that of "
        "the archive which popc compile writes, or else that of the model. A model that has not "
        "changed is not converted again.",
        recorded=False,
    )
