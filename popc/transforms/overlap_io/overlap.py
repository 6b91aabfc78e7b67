"""Transfers of the main loops overlap with computing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

from popc.ir import Graph, Op, Tensor
from popc.ops.main_loops import MainLoop, main_loops
from popc.transforms.base import Pass
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["OverlapIo"]

_PARTITION: Final = "overlapped transfers"
_COPIES, _TRANSFERS, _COMPUTES = range(3)


@frozen
class OverlapIo(Pass):
    """An iteration loads what the next one needs, and stores what the one before has computed.

    Before::

        Loop() trip_count=4
          body = graph stepLoop(%iteration, %condition) {
            %x = HostLoad() exchange='overlap_inner_loop' stream='x'
            %y = Relu(%x)
            HostStore(%y) exchange='overlap_inner_loop' stream='y'
          }

    After::

        %first = HostLoad() stream='x'
        %_, %last = Loop(%first, %zeros) states=2 trip_count=4
          body = graph stepLoop(%iteration, %condition, %x, %y_before) {
            %next = If(%iteration < 3, %x)  then HostLoad() stream='x'  else %x
            If(%iteration > 0, %y_before)  then HostStore(%y_before) stream='y'
            %y = Relu(%x)
            return True, %next, %y
          }
        HostStore(%last) stream='y'

    Every sample is still moved once, and the order of those of one stream is the same.  With
    overlap_loops in two nested loops, samples pass through the states of both, so that only the
    first load and the last store of all stand alone.  Bins let transfers come before what they
    overlap with; copies that make room on the io tiles come first.
    """

    name: ClassVar[str] = "overlap_io"
    optional: ClassVar[bool] = False

    def run(self, graph: Graph) -> int:
        """Move transfers; how many."""
        loops = main_loops(graph)
        _refuse_stranded(graph, loops)
        tasks = _tasks(loops)
        if not tasks:
            return 0
        from popc.transforms.overlap_io.rotation import Rotation  # few programs need it

        moved: dict[Graph, _Moved] = {}
        count = 0
        for task in tasks:
            rotation = Rotation(task.loops)
            count += rotation.run(task.loads, task.stores)
            done = moved.setdefault(task.loops[-1].body, _Moved([], []))
            done.transfers.extend(rotation.transfers)
            done.others.extend(rotation.others)
        for body, done in moved.items():
            _order(body, graph, done)
        return count

    def problems(self, graph: Graph) -> list[str]:
        """See `check_overlap`."""
        from popc.transforms.overlap_io.check import check_overlap

        return check_overlap(graph)


class _Task(NamedTuple):
    """Transfers of one loop body that go through the same loops."""

    loops: tuple[MainLoop, ...]
    loads: list[Op]
    stores: list[Op]


class _Moved(NamedTuple):
    """The work of rotations in one body: transfers, and what decides about them."""

    transfers: list[Op]
    others: list[Op]


def _tasks(loops: list[MainLoop]) -> list[_Task]:
    """The tasks, innermost loops first: they are the outermost ones' contents."""
    tasks: list[_Task] = []
    for index in reversed(range(len(loops))):
        found: dict[int, _Task] = {}
        for op in loops[index].body.ops:
            strategy = _strategy(op)
            if strategy:
                first = 0 if strategy == "overlap_loops" else index
                chain = tuple(loops[first : index + 1])
                task = found.setdefault(first, _Task(chain, [], []))
                (task.loads if op.op_type == "HostLoad" else task.stores).append(op)
        tasks.extend(found.values())
    return tasks


def _strategy(op: Op) -> str:
    """The overlap meant for a transfer, or one that is made now and then; "" if there is none."""
    if op.op_type == "If":
        inner = [op_inside for nested in op.subgraphs.values() for op_inside in nested.ops]
        only = len(inner) == 1 and inner[0].op_type == "HostStore"
        return _strategy(inner[0]) if only else ""
    return str(op.attributes.get("exchange", ""))


def _refuse_stranded(graph: Graph, loops: list[MainLoop]) -> None:
    inside = {op for loop in loops for op in loop.body.ops if op.op_type != "If"}
    inside |= {
        transfer
        for loop in loops
        for op in loop.body.ops
        if op.op_type == "If"
        for nested in op.subgraphs.values()
        for transfer in nested.ops
    }
    wrong = [
        _reason(op)
        for nested in graph.walk()
        for op in nested.ops
        if "exchange" in op.attributes and op not in inside
    ]
    if wrong:
        raise OptionError(
            "exchange_strategies asks to overlap transfers that are in no loop",
            subject="exchange_strategies",
            details=tuple(wrong),
            hint="leave them just_in_time",
        )


def _reason(op: Op) -> str:
    name, strategy = op.attributes["stream"], op.attributes["exchange"]
    if op.op_type == "HostLoad":
        return f"{name!r} is {strategy}, but loaded once in a step, before the loops"
    kind = op.attributes["return_type"]
    advice = f": its return type is {kind}; all values would be stored in the loop"
    return f"{name!r} is {strategy}, but stored once in a step, behind the loops" + (
        advice if kind in ("final", "sum") else ""
    )


def _order(body: Graph, top: Graph, moved: _Moved) -> None:
    """Copies from the io tiles, transfers, everything else."""
    formals = {tensor for tensor in body.inputs[2:] if _is_loaded(tensor.uses, moved.transfers)}
    excluded = {*moved.others, *moved.transfers}
    for op in moved.transfers:
        op.settings = replace(op.settings, bins=())
    bins = dict(_with_numbers(body, formals, excluded)) | dict.fromkeys(moved.transfers, _TRANSFERS)
    from popc.ops.sequencer import Sequencer

    Sequencer(body, top).put_into_bins(_PARTITION, bins)


def _is_loaded(users: dict[Op, int], transfers: list[Op]) -> bool:
    return any(op in transfers and op.outputs for op in users)


def _with_numbers(body: Graph, loaded: set[Tensor], excluded: set[Op]) -> Iterator[tuple[Op, int]]:
    for op in body.ops:
        if op in excluded or op.op_type in ("HostLoad", "HostStore"):
            continue
        makes_room = op.op_type == "IoTileCopy" and op.operand(0) in loaded
        yield op, _COPIES if makes_room else _COMPUTES
