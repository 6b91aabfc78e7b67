"""The device's random numbers: sequences that can be restarted, saved and restored.

numpy is imported where the first number is drawn: most programs draw none.
"""

from __future__ import annotations

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.hints import TYPE_CHECKING, Any, Final, TypeAlias
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.kernels.core.random_checks import check_generator, check_seed, field_of
from popc_runtime.process.forks import free_in_children

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

__all__ = ["LegacySequence", "RandomState", "state_of"]

# A state as JSON holds it: lists, strings and integers.
Plain: TypeAlias = Any

# Tell sequences with the same seed apart: that for rounding, and those that have numbers.
_ROUNDING: Final = 1
_NUMBERED: Final = 2


class RandomState:
    """A sequence of random numbers, and those that instructions with seeds of their own draw from.

    A sequence of its own is kept for stochastic rounding, which needs many bits, but simple ones.

    Sequences of instructions are made in the order in which the program is bound, which is always
    the same: that is how a saved state finds them again.

    Where instructions may run in several orders, each op has a sequence of its own, by number: all
    instructions that it has become draw from it.

    Replicas draw from sequences of their own; replica 0 from those that a single one would.
    """

    def __init__(self, seed: int = 0, replica: int = 0) -> None:
        self._own: list[RandomState | LegacySequence] = []
        self._numbered: dict[int, NumberedState] = {}
        self._replica = replica
        self._source: Array | None = None
        self._rounding_source: Array | None = None
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Restart the sequence, and those of instructions; equal seeds give equal runs."""
        self._seed = seed
        self._generator: np.random.Generator | None = None
        self._rounding: np.random.SFC64 | None = None
        self._point_source()
        for sequence in self._own:
            sequence.restart()
        for numbered in self._numbered.values():
            numbered.seed(seed)

    def numbered(self, number: int) -> RandomState:
        """The sequence of a number, which is the same each time that it is asked for."""
        if number not in self._numbered:
            self._numbered[number] = NumberedState(self, number, self._seed, self._replica)
        return self._numbered[number]

    def restart(self) -> None:
        """Restart from the same seed."""
        self.seed(self._seed)

    def sequence(self, seed: int) -> RandomState:
        """A new sequence for an instruction with a seed of its own."""
        sequence = RandomState(seed, self._replica)
        self._own.append(sequence)
        return sequence

    def legacy_sequence(self, seed: int) -> LegacySequence:
        """Like `sequence`, of numpy's legacy generator."""
        sequence = LegacySequence(seed, self._replica)
        self._own.append(sequence)
        return sequence

    @property
    def _key(self) -> Any:
        """The seed that the sequence follows from."""
        return self._seed

    @property
    def generator(self) -> np.random.Generator:
        """Made when first needed: most programs never do, and numpy.random is slow to load."""
        if self._generator is None:
            import numpy as np

            entropy = _entropy(self._key, self._replica)
            bits = np.random.Philox(entropy)
            free_in_children(bits.lock)
            self._generator = np.random.Generator(bits)
        return self._generator

    @property
    def source(self) -> Array:
        """The source of native kernels: see `_point`.  Seeding and restoring keep it current.

        Nothing else may draw from the sequence while a native program runs.
        """
        if self._source is None:
            import numpy as np

            self._source = np.zeros(4, np.uint64)
            self._point_source()
        return self._source

    def _point_source(self) -> None:
        if self._source is not None:
            _point(self._source, self.generator.bit_generator)
        if self._rounding_source is not None:
            _point(self._rounding_source, self._rounding_generator)

    @property
    def _rounding_generator(self) -> np.random.SFC64:
        if self._rounding is None:
            import numpy as np

            self._rounding = np.random.SFC64(_entropy([self._seed, _ROUNDING], self._replica))
        free_in_children(self._rounding.lock)
        return self._rounding

    @property
    def rounding_source(self) -> Array:
        """Like `source`, for the bits of stochastic rounding."""
        if self._rounding_source is None:
            import numpy as np

            self._rounding_source = np.zeros(4, np.uint64)
            self._point_source()
        return self._rounding_source

    def rounding_bits(self, count: int) -> Array:
        """``count`` numbers of 16 random bits, uint16.

        What is equal on all replicas is to stay so: the compiler marks such instructions, and the
        engine gives them a sequence that all replicas have in common.
        """
        import numpy as np

        return self._rounding_generator.random_raw(-(-count // 4)).view(np.uint16)[:count]

    def save(self) -> Plain:
        """The states of all sequences."""
        drawn = None if self._generator is None else self._generator.bit_generator.state
        numbered = {str(number): state.save() for number, state in sorted(self._numbered.items())}
        return {
            "seed": _plain(self._seed),
            "drawn": _plain(drawn),
            "rounding": _plain(None if self._rounding is None else self._rounding.state),
            "own": [sequence.save() for sequence in self._own],
            **({"numbered": numbered} if numbered else {}),
        }

    def check(self, state: Plain, where: str = "random") -> None:
        """Check everything that `restore` relies on.

        Raises:
            ValueError: the state is damaged, or that of another program; says where it is wrong.
        """
        drawn, rounding = field_of(state, "drawn", where), state.get("rounding")
        if drawn is not None:
            check_generator(drawn, "Philox", f"{where}.drawn")
        if rounding is not None:
            check_generator(rounding, "SFC64", f"{where}.rounding")
        made = (drawn, rounding, self._source, self._rounding_source)
        check_seed(state, where, drawn=any(generator is not None for generator in made))
        own = field_of(state, "own", where, list)
        if len(own) != len(self._own):
            raise ValueError(f"{where} has {len(own)} own sequences, not {len(self._own)}")
        for index, (sequence, saved) in enumerate(zip(self._own, own, strict=True)):
            sequence.check(saved, f"{where}.own[{index}]")
        numbered = field_of({"numbered": {}, **state}, "numbered", where, dict)
        if numbered.keys() != {str(number) for number in self._numbered}:
            raise ValueError(f"{where} has other numbered sequences: {len(numbered)} of them")
        for number, known in self._numbered.items():
            known.check(numbered[str(number)], f"{where}.numbered[{number}]")

    def restore(self, state: Plain) -> None:
        """Go on from where `save` was called.

        Raises:
            ValueError: as `check`; nothing has changed then.
        """
        self.check(state)
        self._seed, self._generator, self._rounding = state["seed"], None, None
        self._point_source()  # the old generator is gone
        if state["drawn"] is not None:
            self.generator.bit_generator.state = state["drawn"]
        if state.get("rounding") is not None:
            import numpy as np

            self._rounding = np.random.SFC64()
            self._point_source()
            self._rounding.state = state["rounding"]
        for sequence, saved in zip(self._own, state["own"], strict=True):
            sequence.restore(saved)
        for number, known in self._numbered.items():
            known.restore(state["numbered"][str(number)])


class NumberedState(RandomState):
    """One of the numbered sequences of a device.

    However many instructions an op has become, it has one sequence, also if it has its own seed.
    Rounding is not its business.
    """

    def __init__(self, device: RandomState, number: int, seed: int, replica: int) -> None:
        self._device = device
        self._number = number
        super().__init__(seed, replica)

    @property
    def _key(self) -> Any:
        return [self._seed, _NUMBERED, self._number]

    def sequence(self, seed: int) -> RandomState:
        """The sequence of the op, which has a seed of its own."""
        for known in self._own:
            if isinstance(known, RandomState):
                return known
        return super().sequence(seed)

    def legacy_sequence(self, seed: int) -> LegacySequence:
        """Like `sequence`, of numpy's legacy generator."""
        for known in self._own:
            if isinstance(known, LegacySequence):
                return known
        return super().legacy_sequence(seed)

    @property
    def rounding_source(self) -> Array:
        """The source of the device."""
        return self._device.rounding_source

    def rounding_bits(self, count: int) -> Array:
        """The random bits of the device, for rounding."""
        return self._device.rounding_bits(count)


class LegacySequence:
    """numpy's legacy generator, which the ONNX reference of Dropout uses."""

    def __init__(self, seed: int, replica: int = 0) -> None:
        self._seed = _entropy(seed % 2**32, replica)
        self._source: Array | None = None
        self.restart()

    def restart(self) -> None:
        """Restart the sequence."""
        import numpy as np

        # A generator made from a seed does not give its bits away.
        self._bits = np.random.MT19937(0)
        free_in_children(self._bits.lock)
        self._generator = np.random.RandomState(self._bits)
        self._generator.set_state(np.random.RandomState(self._seed).get_state(legacy=False))
        if self._source is not None:
            _point(self._source, self._bits)

    @property
    def source(self) -> Array:
        """The source that native kernels draw from: see `_point`."""
        if self._source is None:
            import numpy as np

            self._source = np.zeros(4, np.uint64)
            _point(self._source, self._bits)
        return self._source

    def uniform(self, shape: tuple[int, ...]) -> Any:
        """Numbers in [0, 1), float64."""
        return self._generator.uniform(0.0, 1.0, shape)

    def save(self) -> Plain:
        """The state of the sequence."""
        return _plain(self._generator.get_state(legacy=False))

    def check(self, state: Plain, where: str = "random") -> None:
        """Check everything that `restore` relies on.

        Raises:
            ValueError: as that of `RandomState`.
        """
        check_generator(state, "MT19937", where)

    def restore(self, state: Plain) -> None:
        """Go on from where `save` was called.

        Raises:
            ValueError: as `check`; nothing has changed then.
        """
        self.check(state)
        self._generator.set_state(state)


def state_of(operands: Operands[Any], device: RandomState) -> RandomState:
    """The sequence that an instruction draws from: a new one if it has a seed of its own."""
    if "seed" in operands.attributes:
        return device.sequence(abs(operands.integer("seed")))
    return device


def _entropy(seed: Any, replica: int) -> Any:
    """The seed of a generator of numpy: the seed itself for replica 0."""
    if not replica:
        return seed
    return [*(seed if isinstance(seed, list) else [seed]), replica]


def _point(source: Array, bits: np.random.BitGenerator) -> None:
    """Write the addresses of a generator's state, and of numpy's functions that draw from it.

    They are next_uint32 and next_double of numpy's interface in C, and the interface itself; they
    live as long as ``bits``.
    """
    from ctypes import c_void_p, cast  # slow to load, and few programs draw

    interface = bits.ctypes
    drawn = (interface.next_uint32, interface.next_double, interface.bit_generator)
    addresses = (cast(pointer, c_void_p).value for pointer in drawn)
    source[:] = (interface.state_address, *(pointer or 0 for pointer in addresses))


def _plain(value: object) -> Plain:
    """``value`` without numpy's types."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in _items(value)}
    return value.tolist() if hasattr(value, "tolist") else value


def _items(mapping: Mapping[Any, Any]) -> Sequence[tuple[Any, Any]]:
    return list(mapping.items())
