"""Turn the loop over micro-batches into a pipeline of stages."""

from popc.transforms.pipelining.transform import Pipelining

__all__ = ["Pipelining"]
