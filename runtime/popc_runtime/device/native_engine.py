"""The native engine: runs what it can by native kernels, and the rest as the numpy engine does.

A program becomes one native program.  What no native kernel does is a call back into Python, to
the calls that the numpy engine would make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from popc_runtime.device.engine import (
    IO_OPCODES,
    Engine,
    InstructionTime,
    Step,
    naming,
    tell_iteration,
)
from popc_runtime.errors import DeviceError, PopcError
from popc_runtime.format import Array, Block, IfBlock, Instruction, RepeatBlock
from popc_runtime.frozen import frozen
from popc_runtime.native import (
    Binding,
    Branch,
    Item,
    Library,
    Loop,
    NativeFailure,
    NativeProgram,
    Space,
    encode,
    translate,
)

__all__ = ["NativeEngine"]

# A loop around an instruction, and where the number of its iteration stands.
_Loops = tuple[tuple[RepeatBlock, Array], ...]


@frozen
class _NativeStep(Step):
    """A step and its place in a native program: a record, or the call itself."""

    item: Item


class NativeEngine(Engine):
    """An engine whose programs run in the native library; see `Engine`."""

    def __init__(self, library: Library, *args: Any, **keywords: Any) -> None:
        self._library = library
        self._space = Space()
        self._loops: _Loops = ()
        super().__init__(*args, **keywords)

    # -- running ---------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """What computes: the processors that the kernels are for."""
        return self._library.variant

    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """A native program of ``steps``."""
        return partial(self._run, self._program(steps))

    def _program(self, steps: Sequence[Step]) -> NativeProgram:
        items = [step.item for step in steps if isinstance(step, _NativeStep)]
        return NativeProgram(self._library, items, self._memory, self.scratch.threads)

    @staticmethod
    def _run(program: NativeProgram) -> None:
        try:
            program.run()
        except NativeFailure as failure:
            if failure.owner is None:  # before the first kernel
                raise DeviceError(f"the program cannot run: {failure}") from failure
            step, loops = failure.owner
            raise _device_error(step, loops, failure) from failure

    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """Run ``steps`` and time each; a block counts as one."""
        seconds = self._program(steps).seconds()
        return [
            InstructionTime(step.name, step.opcode, time, self.is_native(step))
            for step, time in zip(steps, seconds, strict=True)
        ]

    def is_native(self, step: Step) -> bool:
        """Whether a step runs without Python."""
        return isinstance(step, _NativeStep) and not callable(step.item)

    # -- binding ---------------------------------------------------------------------------------

    def bind_block(self, block: Block) -> tuple[Step, ...]:
        """The steps of ``block``, in order."""
        steps: list[Step] = []
        for item in block:
            if isinstance(item, Instruction):
                steps.extend(self._instruction(item))
            elif isinstance(item, RepeatBlock):
                steps.append(self._repeat(item))
            elif isinstance(item, IfBlock):
                steps.append(self._choice(item))
            else:
                steps.extend(self._steps_of(item.program))
        return tuple(steps)

    def _instruction(self, item: Instruction) -> list[Step]:
        record = None
        if item.opcode not in IO_OPCODES:
            with naming(item):
                self._space.reset()
                binding = Binding.of(self.binding(item), self._space)
                record = encode(item.opcode, binding, self._library.numbers)
        if record is not None:
            step = Step(_nothing, item.name, item.opcode)
            return [_NativeStep(*_of(step), record.owned((step, self._loops)))]
        # On several threads numpy's calls may be others: results must not depend on that.
        steps = self._on_one_thread(item)
        records = [translate(step.call, self._library.numbers) for step in steps]
        if None not in records:
            return [
                _NativeStep(*_of(step), record.owned((step, self._loops)))
                for step, record in zip(steps, records, strict=True)
                if record is not None
            ]
        if self.scratch.threads > 1:
            steps = self._bind_instruction(item)
        return [_NativeStep(*_of(step), partial(_guarded, step, self._loops)) for step in steps]

    def _on_one_thread(self, item: Instruction) -> list[Step]:
        threads, self.scratch.threads = self.scratch.threads, 1
        try:
            return self._bind_instruction(item)
        finally:
            self.scratch.threads = threads

    def _repeat(self, block: RepeatBlock) -> Step:
        if self.counts:  # which Python does
            step = Step(self._bind_repeat(block), block.name, "Repeat")
            return _NativeStep(*_of(step), partial(_guarded, step, self._loops))
        counter = self._scalar(block.counter_slot)
        if counter is None:  # errors tell it
            counter = np.zeros((), np.int64)
        outer = self._loops
        self._loops = (*outer, (block, counter))
        body = self._items(block.body)
        self._loops = outer
        scalars = (self._scalar(slot) for slot in (block.count_slot, block.condition_slot))
        limit, condition = (0 if one is None else _address(one) for one in scalars)
        loop = Loop(body, block.count, limit, condition, _address(counter), kept=(counter,))
        return _NativeStep(_nothing, block.name, "Repeat", loop)

    def _choice(self, block: IfBlock) -> Step:
        if self.counts:
            step = Step(self._bind_if(block), block.name, "If")
            return _NativeStep(*_of(step), partial(_guarded, step, self._loops))
        condition = _address(self._memory.view(block.condition_slot))
        branch = Branch(condition, self._items(block.then_body), self._items(block.else_body))
        return _NativeStep(_nothing, block.name, "If", branch)

    def _items(self, block: Block) -> list[Item]:
        return [step.item for step in self.bind_block(block) if isinstance(step, _NativeStep)]


def _of(step: Step) -> tuple[Callable[[], object], str, str]:
    return step.call, step.name, step.opcode


def _nothing() -> None:
    """The call of a step that is part of a native program only."""


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _guarded(step: Step, loops: _Loops) -> None:
    """Call ``step`` and let an error tell which instruction it was, and where in which loops."""
    try:
        step.call()
    except DeviceError as error:
        _tell_iterations(error, loops)
        raise
    except PopcError:
        raise
    except Exception as error:
        raise _device_error(step, loops, error) from error


def _device_error(step: Step, loops: _Loops, cause: Exception) -> DeviceError:
    error = DeviceError(f"{step.opcode} ({step.name}) failed: {cause}", subject=step.name)
    _tell_iterations(error, loops)
    return error


def _tell_iterations(error: DeviceError, loops: _Loops) -> None:
    for block, counter in reversed(loops):
        tell_iteration(error, block, int(counter[()]))
