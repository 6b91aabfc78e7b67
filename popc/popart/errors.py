"""PopART's exceptions, as one tree, with the hooks by which its tests raise them.

    Exception
    ├── popart_exception                          what is wrong with a model, an option or a call
    │   ├── popart_internal_exception             what cannot happen
    │   ├── popart_runtime_error                  what is wrong while a session runs
    │   └── OutOfMemoryException                  the program needs more than the device has
    ├── poplibs_exception
    └── poplar_exception
        └── poplar_runtime_error
            ├── poplar_application_runtime_error
            └── poplar_system_runtime_error
                ├── poplar_recoverable_runtime_error
                ├── poplar_unrecoverable_runtime_error
                └── poplar_unknown_runtime_error

Each has one argument, its message: ``error.args[0] == str(error)``.  None is a `RuntimeError`,
which is what ONNX's checker raises.  A message is logged at level ERR when its error is made.
"""

from __future__ import annotations

from typing import ClassVar, Final, NoReturn, Protocol

from popc.popart.enums import RecoveryAction
from popc.popart.logger import log

__all__ = [
    "HOOKS",
    "OutOfMemoryError",
    "OutOfMemoryException",
    "popart_exception",
    "popart_internal_exception",
    "popart_runtime_error",
    "poplar_application_runtime_error",
    "poplar_exception",
    "poplar_recoverable_runtime_error",
    "poplar_runtime_error",
    "poplar_system_runtime_error",
    "poplar_unknown_runtime_error",
    "poplar_unrecoverable_runtime_error",
    "poplibs_exception",
]


class popart_exception(Exception):
    """An error in a model, an option or a call."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if args:
            log("popart", "ERR", str(args[0]))


class popart_internal_exception(popart_exception):
    """An error that cannot happen."""


class popart_runtime_error(popart_exception):
    """An error while a session runs."""


class poplibs_exception(Exception):
    """A refusal by an operation of the device."""


class poplar_exception(Exception):
    """A refusal by the backend."""


class poplar_runtime_error(poplar_exception):
    """An error on the device."""


class poplar_application_runtime_error(poplar_runtime_error):
    """The program is at fault."""


class poplar_system_runtime_error(poplar_runtime_error):
    """The machine is at fault."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """The machine works again after ``recoveryAction``."""

    recoveryAction: ClassVar[RecoveryAction] = RecoveryAction.IPU_RESET


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """The machine needs repair."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """An error for which the remedy of the machine is not known."""


class _MemoryReport(Protocol):
    """The source of the details of an `OutOfMemoryException`."""

    def getSummaryReport(self) -> str: ...

    def getProfilePath(self) -> str: ...


class OutOfMemoryError:
    """The outcome of a compilation: successful until something does not fit.  No exception.

    Args:
        message: What does not fit; "" if everything does.
        summary: The memory report; "" if none was asked for.
        profile: The absolute path of the profile; "" if there is none.
    """

    __slots__ = ("_message", "_profile", "_summary")

    def __init__(self, message: str = "", summary: str = "", profile: str = "") -> None:
        self._message = message
        self._summary = summary
        self._profile = profile

    def isSuccessful(self) -> bool:
        """True if everything fits."""
        return not self._message

    def getSummaryReport(self) -> str:
        """The memory report.

        Raises:
            popart_exception: none was made.
        """
        if not self._summary:
            raise popart_exception(
                "There is no report of the memory: set the engine option "
                "debug.allowOutOfMemory to true to get one."
            )
        return self._summary

    def getProfilePath(self) -> str:
        """The absolute path of the profile; "" if there is none."""
        return self._profile

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"popart.OutOfMemoryError: {self._message}"


class OutOfMemoryException(popart_exception):
    """The program needs more memory than the device has.

    Attributes:
        error: What went wrong; `OutOfMemoryError` in practice.
    """

    def __init__(self, e: _MemoryReport) -> None:
        super().__init__(str(e))
        self.error = e

    def getSummaryReport(self) -> str:
        """The memory report.

        Raises:
            popart_exception: none was made.
        """
        return self.error.getSummaryReport()

    def getProfilePath(self) -> str:
        """The absolute path of the profile; "" if there is none."""
        return self.error.getProfilePath()


def _hook(kind: type[Exception]) -> object:
    def throw(message: str) -> NoReturn:
        raise kind(message)

    return throw


# Functions of PopART's native module that raise an exception of each class with a given message.
HOOKS: Final = {
    "_throw_application_runtime_error": _hook(poplar_application_runtime_error),
    "_throw_popart_error": _hook(popart_exception),
    "_throw_popart_internal_error": _hook(popart_internal_exception),
    "_throw_popart_runtime_error": _hook(popart_runtime_error),
    "_throw_poplar_error": _hook(poplar_exception),
    "_throw_poplar_runtime_error": _hook(poplar_runtime_error),
    "_throw_poplibs_error": _hook(poplibs_exception),
    "_throw_recoverable_runtime_error": _hook(poplar_recoverable_runtime_error),
    "_throw_system_runtime_error": _hook(poplar_system_runtime_error),
    "_throw_unknown_runtime_error": _hook(poplar_unknown_runtime_error),
    "_throw_unrecoverable_runtime_error": _hook(poplar_unrecoverable_runtime_error),
}
