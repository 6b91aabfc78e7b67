"""Instructions as records of a native program, and the rest as calls of numpy's kernels.

A program becomes one native program.  What no native kernel does is a call back into Python, to
the calls that the numpy engine would make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from popc_runtime.device.binder import Binder
from popc_runtime.device.bound_program import IO_OPCODES, BoundProgram
from popc_runtime.device.control import branch_call, repeat_call
from popc_runtime.device.numpy_binder import NumpyBinder
from popc_runtime.device.steps import InstructionTime, Step, cannot_be_bound, naming, tell_iteration
from popc_runtime.errors import DeviceError, PopcError, RunTimeoutError
from popc_runtime.format import Block, DType, IfBlock, Instruction, ProgramImage, RepeatBlock
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import TYPE_CHECKING, Final, NoReturn, TypeVar
from popc_runtime.native import (
    Branch,
    DirectRun,
    Item,
    Library,
    Loop,
    NativeBinding,
    NativeFailure,
    NativeProgram,
    Record,
    Space,
    Transfer,
    encode,
)
from popc_runtime.native.contiguous import fill_record, move_record
from popc_runtime.native.record import MAX_RANK
from popc_runtime.native.views import View, address_of, empty
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    from popc_runtime.format import TensorSpec
    from popc_runtime.kernels import Binding

__all__ = ["NativeBinder", "is_native"]

# Of the memory that kernels have beside that of the program: bytes that are always allowed, and how
# many times as large as the latter it may be.
_LEAST_SCRATCH: Final = 1 << 30
_SCRATCH_OF_MEMORY: Final = 16

# A loop around an instruction, and where the number of its iteration stands.
_Loops = tuple[tuple[RepeatBlock, View], ...]
_T = TypeVar("_T")


def _most_scratch(image: ProgramImage) -> int:
    """Bytes that kernels may have beside the memory of a program, whose size limits bound.

    Copies, packed operands and sums are a few times as large as operands; what is much larger comes
    of padding and strides that nobody means.
    """
    regions = (image.arena_bytes, image.constant_bytes, image.state_bytes, image.remote_bytes)
    return max(_LEAST_SCRATCH, _SCRATCH_OF_MEMORY * sum(regions))


@frozen
class _NativeStep(Step):
    """A step and its place in a native program: a record, or the call itself."""

    item: Item


@frozen
class _Walk:
    """Runs a native program."""

    program: NativeProgram
    watch: RunWatch

    def __call__(self) -> None:
        try:
            self.program.run(self.watch.deadline)
        except NativeFailure as failure:
            if failure.timed_out:
                raise _time_up(self.watch, failure.owner) from None
            _fail(failure)


class NativeBinder(Binder):
    """Native programs, with numpy's calls for what no native kernel does; see `Binder`."""

    def __init__(self, library: Library, program: BoundProgram) -> None:
        super().__init__(program)
        self._library = library
        self._numpy = NumpyBinder(program)
        self._space = Space()
        self._loops: _Loops = ()
        self._calls_numpy = False

    @property
    def kind(self) -> str:
        """See `Binder`."""
        return self._library.variant

    # -- running ---------------------------------------------------------------------------------

    def settings(self) -> AbstractContextManager[None]:
        """The settings of numpy, if it is called."""
        return self._numpy.settings() if self._calls_numpy else nullcontext()

    def walker(self, steps: Sequence[Step]) -> Callable[[], None]:
        """A native program of ``steps``."""
        return _Walk(self._native_program(_stores_last(steps)), self.program.watch)

    def direct(
        self, walk: Callable[[], None], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> DirectRun | None:
        """See `Binder`."""
        if self._calls_numpy or not isinstance(walk, _Walk):
            return None
        return walk.program.direct(inputs, outputs, _fail)

    def timed(self, steps: Sequence[Step]) -> list[InstructionTime]:
        """See `Binder`."""
        seconds = _told(self._native_program(steps).seconds)
        return [
            InstructionTime(step.name, step.opcode, time, is_native(step))
            for step, time in zip(steps, seconds, strict=True)
        ]

    def _native_program(self, steps: Sequence[Step]) -> NativeProgram:
        items = [step.item for step in steps if isinstance(step, _NativeStep)]
        try:
            made = NativeProgram(self._library, items, self.program.memory, self.program.threads)
            made.require_scratch(_most_scratch(self.program.image))
        except NativeFailure as failure:
            if failure.owner is None:
                raise DeviceError(f"the program cannot be prepared to run: {failure}") from failure
            step, _ = failure.owner
            raise cannot_be_bound(step.opcode, step.name, failure) from failure
        return made

    # -- binding ---------------------------------------------------------------------------------

    def operands(self, item: Instruction) -> Binding:
        """See `Binder`."""
        return self._numpy.operands(item)

    def instruction(self, item: Instruction) -> list[Step]:
        """See `Binder`."""
        self._space.reset()
        with naming(item):
            if item.opcode in IO_OPCODES:
                return self._transfer(item)
            record = encode(item.opcode, self._views(item), self._library.numbers)
            return self._calls_of_numpy(item) if record is None else [self.native(item, record)]

    def _views(self, item: Instruction) -> NativeBinding:
        program = self.program
        return NativeBinding(
            program.memory.views(item.inputs),
            program.memory.views(item.outputs),
            program.dtypes(item.inputs),
            program.dtypes(item.outputs),
            item.attributes,
            program.finals(item.inputs),
            self._space,
            program.random_of(item),
            program.replica,
        )

    def native(self, item: Instruction, record: Record) -> Step:
        """A record of an instruction as a step."""
        step = Step(_nothing, item.name, item.opcode)
        return _NativeStep(*_of(step), record.owned((step, self._loops)))

    def _called(self, step: Step) -> Step:
        return _NativeStep(*_of(step), _Guarded((step, self._loops)))

    def touching(self, steps: Sequence[Step]) -> list[Step]:
        """See `Binder`."""
        first = steps[0]
        assert isinstance(first, _NativeStep)
        touched = self.program.watch.touched
        flag = View(address_of(memoryview(touched)), (1,), DType.UINT8, owner=touched)
        record = fill_record(flag, b"\1").owned((first, self._loops))
        if isinstance(first.item, Record):
            record = replace(first.item, before=(record, *first.item.before))
            return [_NativeStep(*_of(first), record), *steps[1:]]
        return [_NativeStep(*_of(first), record), *steps]

    def _transfer(self, item: Instruction) -> list[Step]:
        """A port's call, on contiguous memory, and a move from or to memory that is not."""
        stream, loads = str(item.attributes["stream"]), item.opcode == "HostLoad"
        slot = item.outputs[0] if loads else item.inputs[0]
        view = self.program.memory.view(slot)
        if not view.is_contiguous and view.ndim > MAX_RANK:
            return [self._called(step) for step in self._numpy.instruction(item)]
        own = not self._loops  # memory that a direct run may have elsewhere
        landings = self.program.landings
        copied = own and not loads and slot in landings.copied
        near = empty(view.shape, view.dtype) if copied else self._near(view, own=own)
        if loads:
            call = partial(self.program.ports.inputs[stream].load, near.memory())
        else:
            call = partial(self.program.ports.outputs[stream].store, near.memory())
        step = Step(call, item.name, item.opcode)
        guarded = _Guarded((step, self._loops))
        lands = own and (near is not view or slot in landings.own)
        moved = Transfer(stream, loads, near.memory(), guarded, near.itemsize if lands else 0)
        steps: list[Step] = [_NativeStep(*_of(step), moved)]
        if near is not view:
            record = move_record(view, near) if loads else move_record(near, view)
            steps.insert(len(steps) if loads else 0, self.native(item, record))
        return steps

    def _near(self, view: View, *, own: bool) -> View:
        """Contiguous memory for a transfer: that of ``view``, or other, its own or anybody's."""
        if view.is_contiguous:
            return view
        return empty(view.shape, view.dtype) if own else self._space.take(view.shape, view.dtype)

    def _calls_of_numpy(self, item: Instruction) -> list[Step]:
        """The calls that numpy's kernel makes, by native kernels if all are known to them."""
        from popc_runtime.native.translation import translate

        # On several threads numpy's calls may be others: results must not depend on that.
        steps = self._on_one_thread(item)
        records = [translate(step.call, self._library.numbers) for step in steps]
        if None not in records:
            return [self.native(item, record) for record in records if record is not None]
        if self.program.threads > 1:
            steps = self._numpy.instruction(item)
        self._calls_numpy = True
        return [self._called(step) for step in steps]

    def _on_one_thread(self, item: Instruction) -> list[Step]:
        program = self.program
        threads, program.threads = program.threads, 1
        try:
            with self._numpy.settings():
                return self._numpy.instruction(item)
        finally:
            program.threads = threads

    def repeat(self, block: RepeatBlock) -> Step:
        """See `Binder`."""
        if self.program.counts:  # which Python does
            self._calls_numpy = True
            walk = self.walker(self.block(block.body))
            return self._called(Step(repeat_call(self.program, block, walk), block.name, "Repeat"))
        counter = self._view(block.counter_slot)
        if counter is None:  # errors tell it
            counter = empty((), DType.INT64)
        outer = self._loops
        self._loops = (*outer, (block, counter))
        body = self._items(block.body)
        self._loops = outer
        scalars = (self._view(slot) for slot in (block.count_slot, block.condition_slot))
        limit, condition = (0 if scalar is None else scalar.address for scalar in scalars)
        step = Step(_nothing, block.name, "Repeat")
        owner = (step, (*outer, (block, counter)))
        loop = Loop(body, block.count, limit, condition, counter.address, (counter,), owner)
        return _NativeStep(*_of(step), loop)

    def branch(self, block: IfBlock) -> Step:
        """See `Binder`."""
        if self.program.counts:
            self._calls_numpy = True
            walks = (self.walker(self.block(body)) for body in (block.then_body, block.else_body))
            return self._called(Step(branch_call(self.program, block, *walks), block.name, "If"))
        condition = self.program.memory.view(block.condition_slot).address
        branch = Branch(condition, self._items(block.then_body), self._items(block.else_body))
        return _NativeStep(_nothing, block.name, "If", branch)

    def _view(self, slot: int) -> View | None:
        return None if slot < 0 else self.program.memory.view(slot)

    def _items(self, block: Block) -> list[Item]:
        return [step.item for step in self.block(block) if isinstance(step, _NativeStep)]


def _stores_last(steps: Sequence[Step]) -> list[Step]:
    """The same with the copies of what is stored at the end before the first store of it.

    They write to memory of their own.  What the caller's arrays hold is read before any is written.
    """
    start = len(steps)
    while start and steps[start - 1].opcode == "HostStore":
        start -= 1
    return [*steps[:start], *sorted(steps[start:], key=lambda step: not is_native(step))]


def is_native(step: Step) -> bool:
    """True if a step runs without Python."""
    return isinstance(step, _NativeStep) and not (
        isinstance(step.item, Transfer) or callable(step.item)
    )


def _told(run: Callable[[], _T]) -> _T:
    """The result of ``run``; what fails in it is told by the instruction."""
    try:
        return run()
    except NativeFailure as failure:
        _fail(failure)


def _fail(failure: NativeFailure) -> NoReturn:
    if failure.owner is None:  # before the first kernel
        raise DeviceError(f"the program cannot run: {failure}") from failure
    step, loops = failure.owner
    raise _device_error(step, loops, failure) from failure


def _of(step: Step) -> tuple[Callable[[], object], str, str]:
    return step.call, step.name, step.opcode


def _nothing() -> None:
    """The call of a step that is part of a native program only."""


@frozen
class _Guarded:
    """A call of Python's whose errors tell which instruction it was, and where in which loops."""

    owner: tuple[Step, _Loops]

    def __call__(self) -> None:
        step, loops = self.owner
        try:
            step.call()
        except DeviceError as error:
            _tell_iterations(error, loops)
            raise
        except PopcError:
            raise
        except Exception as error:
            raise _device_error(step, loops, error) from error


def _time_up(watch: RunWatch, owner: tuple[Step, _Loops] | None) -> RunTimeoutError:
    if owner is None:
        return watch.time_up()
    step, loops = owner
    error = watch.time_up(step.opcode, step.name)
    _tell_iterations(error, loops)
    return error


def _device_error(step: Step, loops: _Loops, cause: Exception) -> DeviceError:
    error = DeviceError(f"{step.opcode} ({step.name}) failed: {cause}", subject=step.name)
    _tell_iterations(error, loops)
    return error


def _tell_iterations(error: DeviceError, loops: _Loops) -> None:
    for block, counter in reversed(loops):
        tell_iteration(error, block, counter.item())
