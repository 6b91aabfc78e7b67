"""An engine: binds the programs of an image once, then walks ready steps.

Binding order matters.  The load program (``weights_from_host``) is bound and run first, so that
when the other programs are bound, the values it computed are final and kernels may pack them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from popc_runtime.device.binder import Binder
from popc_runtime.device.bound_program import BoundProgram
from popc_runtime.device.ports import Ports
from popc_runtime.device.steps import InstructionTime
from popc_runtime.format import LOAD_PROGRAM, Array, FloatCheck, ProgramImage, VariableSpec
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.kernels.core.random_state import RandomState
from popc_runtime.process.watch import RunWatch

if TYPE_CHECKING:
    from popc_runtime.format import TensorSpec
    from popc_runtime.native import DirectRun

__all__ = ["Engine"]


class Engine:
    """Runs the programs of one image.  Not thread-safe: it owns one arena.

    With ``replica`` it is one of several that another engine leads through the programs: it binds
    and runs the load program, and of the others what it is told to.  ``random`` are its random
    numbers then, ``alike`` those that it has in common with the other replicas.

    Attributes:
        program: The image in memory.
        binder: Makes steps of it; ``make_binder`` has made it.

    ``checks`` are the floating-point exceptions that end a run; the load program may have them.
    ``counted`` are the programs whose loops and branches are counted.  Of the programs, those that
    are ``late`` are bound when they first run.  ``watch`` may stop a run, that of the load program
    too.

    Raises (constructor):
        IncompatibleArchiveError: the image needs instructions that this runtime lacks.
        DeviceError: the load program failed.
    """

    def __init__(
        self,
        make_binder: Callable[[BoundProgram], Binder],
        image: ProgramImage,
        constants: memoryview,
        ports: Ports,
        *,
        variables: Sequence[VariableSpec] = (),
        seed: int = 0,
        threads: int = 1,
        replica: int | None = None,
        random: RandomState | None = None,
        alike: RandomState | None = None,
        checks: Collection[FloatCheck] = (),
        counted: Collection[str] = (),
        late: Collection[str] = (),
        watch: RunWatch | None = None,
    ) -> None:
        self.program = BoundProgram(
            image,
            constants,
            ports,
            variables=variables,
            threads=threads,
            replica=replica or 0,
            random=random or RandomState(seed),
            alike=alike,
            counted=counted,
            watch=watch,
            lands=replica is None,  # others meet at their ports: their runs are never direct
        )
        self.binder = make_binder(self.program)
        self._walks: dict[str, Callable[[], None]] = {}
        if LOAD_PROGRAM in image.programs:
            self.run(LOAD_PROGRAM)
            self.program.is_loaded = True
        self.program.checks = checks
        if replica is None:
            for name in self.program.image.programs:
                if name.partition("/")[0] not in late:
                    self._walk_of(name)

    @property
    def kind(self) -> str:
        """The kind of kernels: "numpy", or the processors that native ones are for."""
        return self.binder.kind

    @property
    def replicas(self) -> tuple[Engine, ...]:
        """The engine of each replica: this one."""
        return (self,)

    @property
    def random(self) -> RandomState:
        """The device's random numbers."""
        return self.program.random

    @property
    def variables(self) -> dict[str, Array]:
        """The arrays of the variables, by name; the host may write to them between runs."""
        return self.program.variables

    def run(self, program: str) -> None:
        """Run one program to its end.

        Raises:
            DeviceError: an instruction failed, or time was up; names it.
        """
        walk = self._walk_of(program)  # binding finds out which settings hold
        with self.binder.settings():
            walk()

    def direct(
        self, program: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> DirectRun | None:
        """A function that runs one program on arrays, past the ports; ``None`` if there is none."""
        return self.binder.direct(self._walk_of(program), inputs, outputs)

    def profile(self, program: str) -> list[InstructionTime]:
        """Run one program and time each instruction; a block counts as one."""
        self._walk_of(program)
        with self.binder.settings():
            return self.binder.timed(self.binder.steps_of(program))

    def _walk_of(self, program: str) -> Callable[[], None]:
        if program not in self._walks:
            with self.binder.settings():
                self._walks[program] = self.binder.walker(self.binder.steps_of(program))
        return self._walks[program]
