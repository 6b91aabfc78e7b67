"""Saved states of numpy's generators, checked before numpy takes them.

numpy believes every number, and draws from where ``buffer_pos`` says, also if that lies outside of
the buffer.
"""

from __future__ import annotations

from popc_runtime.ground.hints import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_generator", "check_seed", "field_of"]

_FLAG: Final = 1  # the largest
_UINT32: Final = 2**32 - 1  # the largest
_UINT64: Final = 2**64 - 1  # the largest

# The largest number of each field, and how many numbers it has: 0 if it is no list.  The smallest
# number is 0, but of the place in Philox's buffer, which numpy never leaves at its start.
_LIMITS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "Philox": {
        "state.counter": (_UINT64, 4),
        "state.key": (_UINT64, 2),
        "buffer": (_UINT64, 4),
        "buffer_pos": (4, 0),
        "has_uint32": (_FLAG, 0),
        "uinteger": (_UINT32, 0),
    },
    "SFC64": {
        "state.state": (_UINT64, 4),
        "has_uint32": (_FLAG, 0),
        "uinteger": (_UINT32, 0),
    },
    "MT19937": {
        "state.key": (_UINT32, 624),
        "state.pos": (624, 0),
        "has_gauss": (_FLAG, 0),
    },
}


def field_of(state: Any, name: str, where: str, kind: type[Any] = object) -> Any:
    """A field of a saved state.

    Raises:
        ValueError: there is none, or it is something else.
    """
    if not isinstance(state, dict):
        raise ValueError(f"{where} is not a table")
    if name not in state:
        raise ValueError(f"{where} lacks {name!r}")
    if not isinstance(state[name], kind):
        raise ValueError(f"{where}.{name} is not of type {kind.__name__}")
    return state[name]


def check_seed(state: Any, where: str, *, drawn: bool) -> None:
    """Check the seed of a sequence; numpy draws only from those that are not negative.

    Raises:
        ValueError: it is no seed.
    """
    seed = field_of(state, "seed", where)
    if type(seed) is not int or (drawn and seed < 0):
        raise ValueError(f"{where}.seed is {_shown(seed)}, which is not a seed")


def check_generator(state: Any, name: str, where: str) -> None:
    """Check the state of numpy's generator of that name.

    Raises:
        ValueError: it has no such state; says which field is wrong.
    """
    if field_of(state, "bit_generator", where) != name:
        raise ValueError(f"{where} is a state of {_shown(state['bit_generator'])}, not of {name}")
    for path, (most, count) in _LIMITS[name].items():
        least = 1 if path == "buffer_pos" else 0
        value, at = state, where
        for part in path.split("."):
            value, at = field_of(value, part, at), f"{at}.{part}"
        if count and (not isinstance(value, list | tuple) or len(value) != count):
            raise ValueError(f"{at} is not a list of {count} numbers")
        for number in value if count else (value,):
            if type(number) is not int or not least <= number <= most:
                raise ValueError(f"{at} is {_shown(number)}, not a number from {least} to {most}")
    if name == "MT19937":
        field_of(state, "gauss", where, float)


def _shown(value: object) -> str:
    """Short: what is no state may be large."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
