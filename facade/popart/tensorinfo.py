"""Types of tensors."""

from popc.popart.tensorinfo import TensorInfo, _get_popart_type

__all__ = ["TensorInfo", "_get_popart_type"]
