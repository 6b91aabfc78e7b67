"""Make host transfers explicit: the graph's inputs become HostLoad ops, its outputs HostStore."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from popc.ir import AttributeMap, Graph, OpSettings, Tensor
from popc.ops.build import build
from popc.options import ExchangeStrategy, Options, StreamMode, SyntheticDataMode
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc.transforms.stream_names import check_stream_names
from popc_runtime.errors import OptionError
from popc_runtime.format import DType, ReturnType
from popc_runtime.ground.frozen import frozen

__all__ = ["HostIo"]

_NARROW: Final = (DType.FLOAT16, DType.BFLOAT16)


@frozen
class HostIo(Pass):
    """Each input and output of the top graph becomes a transfer on a stream of the same name.

    Before::

        graph main(%x: float32[4]) {
          %y: float32[4] = Relu(%x)
          return y
        }

    After::

        graph main() {
          %x: float32[4] = HostLoad() dtype='float32' shape=[4] stream='x'
          %y: float32[4] = Relu(%x)
          HostStore(%y) period=1 return_type='all' stream='y'
          return
        }

    The options give the return type of each output, what replicas take from an input, and when
    and how a stream is transferred, by name.
    """

    name: ClassVar[str] = "host_io"
    optional: ClassVar[bool] = False
    options: Options

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options)

    def run(self, graph: Graph) -> int:
        """Replace inputs and outputs; the number of transfers."""
        inputs = [tensor.name for tensor in graph.inputs]
        check_stream_names(self.options, inputs, graph.output_names)
        changes = len(graph.inputs) + len(graph.outputs)
        # Outputs stand aside: each input that is replaced would be looked for among them.
        outputs, graph.outputs = graph.outputs, []
        loaded: dict[Tensor, Tensor] = {}
        for tensor in tuple(graph.inputs):  # it shrinks on the way
            settings = self._settings(tensor.name)
            load = build(graph, "HostLoad", [], self._load_attributes(tensor), settings=settings)
            graph.replace_uses(tensor, load.output)
            loaded[tensor] = load.output
            name = tensor.name
            graph.remove_input(tensor)
            graph.rename(load.output, name)
        for name, tensor in zip(graph.output_names, outputs, strict=True):
            anchor = self.options.anchor(name)
            stored = self._in_wanted_type(graph, name, loaded.get(tensor, tensor))
            build(
                graph,
                "HostStore",
                [stored],
                {
                    "stream": name,
                    "return_type": anchor.type.value,
                    "period": anchor.period,
                    **self._manner(name),
                },
                settings=self._settings(name),
            )
        graph.output_names.clear()
        return changes

    def _in_wanted_type(self, graph: Graph, name: str, tensor: Tensor) -> Tensor:
        """``tensor`` in the type in which it is to be added up.

        Raises:
            OptionError: the type does not have its values.
        """
        anchor, own = self.options.anchor(name), tensor.type.dtype
        dtype = anchor.dtype
        if dtype is None and anchor.type is ReturnType.SUM and own in _NARROW:
            dtype = DType.FLOAT32  # sums are too large for them soon
        if dtype is None or dtype is own:
            return tensor
        if not _holds(dtype, own):
            raise OptionError(
                f"the return type of {name!r} is sum:{dtype.value}, which cannot hold a sum of "
                f"its values of type {own.value}",
                subject="anchors",
                hint="leave the type out, or name a wider one",
            )
        settings = OpSettings(origin="anchorSum")
        return build(graph, "Cast", [tensor], {"to": dtype.value}, settings=settings).output

    def _load_attributes(self, tensor: Tensor) -> AttributeMap:
        attributes: AttributeMap = {
            "stream": tensor.name,
            "dtype": tensor.type.dtype.value,
            "shape": tensor.type.shape,
        }
        several = self.options.replicated_graph_count > 1
        if several and self.options.stream_mode(tensor.name) is StreamMode.BROADCAST:
            attributes["broadcast"] = 1  # all replicas take the same sample
        return {**attributes, **self._manner(tensor.name)}

    def _manner(self, stream: str) -> AttributeMap:
        """The manner in which a stream is transferred, if it is not the usual one."""
        mode = self.options.synthetic_data(stream)
        if mode is not SyntheticDataMode.OFF:
            return {"synthetic": mode.value}
        strategy = self.options.exchange_strategy(stream)
        usual = strategy is ExchangeStrategy.JUST_IN_TIME
        return {} if usual else {"exchange": strategy.value}

    def _settings(self, stream: str) -> OpSettings:
        return OpSettings(origin=stream, tile_set=self.options.tile_set(stream).value)


def _holds(sum_type: DType, own: DType) -> bool:
    """True if sums in ``sum_type`` hold at least what those in ``own`` do."""
    if own is DType.BOOL:
        return True
    wider = sum_type.itemsize > own.itemsize
    if own.is_float:
        return sum_type.is_float and wider
    return sum_type.is_float or (wider and (sum_type.is_signed or own.is_unsigned))
