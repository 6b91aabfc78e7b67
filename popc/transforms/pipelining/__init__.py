"""Turn the loop over micro-batches into a pipeline of stages."""

from popc.transforms.pipelining.outer_fragment import OuterFragment
from popc.transforms.pipelining.pipelining import Pipelining

__all__ = ["OuterFragment", "Pipelining"]
