"""The pass that pipelines, without what it needs for that."""

from __future__ import annotations

from typing import ClassVar, Self

from popc.ir import Graph
from popc.options import AutoRecomputation, PipelineSchedule
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["Pipelining"]


@frozen
class Pipelining(Pass):
    """Stages work at the same time, each on another micro-batch.

    Before, with stage 0 on chip 0 and stage 1 on chip 1::

        Loop() states=0 trip_count=4
          body = graph stepLoop(%iteration, %condition) {
            %x = HostLoad() stream='x'           stage 0
            %y = Relu(%x)                        stage 0
            %y_c1 = IpuCopy(%y)                  stage 0
            HostStore(%y_c1) stream='y'          stage 1
            return True
          }

    After::

        %x, %y, %y_c1 = ...                      fill: stage 0 of micro-batch 0
        %z = Loop(-, -, %y_c1) states=1 trip_count=3
          body = graph pipeline(%iteration, %condition, %last) {
            %x, %y = ...                         stage 0
            HostStore(%last) stream='y'          stage 1, of the micro-batch before
            %y_c1 = IpuCopy(%y)
            return True, %y_c1
          }
        HostStore(%z) stream='y'                 flush: stage 1 of micro-batch 3

    What a stage hands to the next one is a state of the loop; what is needed later is stashed in a
    row of values.  Every stage sees the micro-batches in order, so that results are the same bit
    for bit; only random numbers are drawn in the order of cycles, if several stages draw some.

    Attributes:
        enabled: Whether to do anything.
        schedule: How stages take turns: see `time_stages`.
        repeats: Whether later stages of a pipeline for inference compute once more what they can.
    """

    name: ClassVar[str] = "pipelining"
    optional: ClassVar[bool] = False
    enabled: bool = False
    schedule: PipelineSchedule = PipelineSchedule.GROUPED
    repeats: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        again = options.auto_recomputation is AutoRecomputation.PIPELINE
        repeats = again and not options.stash_all_tensors_inference_pipeline
        return cls(options.enable_pipelining, options.pipeline_schedule, repeats)

    def run(self, graph: Graph) -> PassOutcome:
        """Pipeline the innermost loop around the program."""
        if not self.enabled:
            return PassOutcome(0)
        from popc.transforms.pipelining.transform import pipeline_stages  # few programs need it

        return pipeline_stages(graph, self.schedule, repeats=self.repeats)

    def problems(self, graph: Graph) -> list[str]:
        """Ops that work on several micro-batches at once."""
        if not self.enabled:
            return []
        from popc.transforms.pipelining.check import find_mixtures

        return find_mixtures(graph)
