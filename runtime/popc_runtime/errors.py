"""Every error that popc and its runtime raise on purpose, as one tree.

    PopcError                        code, message, subject, hint, details
    ├── UsageError                   a wrong argument to a command or a function
    ├── OptionError                  an unknown, ill-typed or conflicting option
    ├── ModelError                   the ONNX model is not valid or cannot be compiled
    │   ├── UnsupportedOpError       operators that popc does not know
    │   ├── DataDependentShapeError  shapes that only run-time values could tell
    │   └── TooMuchWorkError         importing it takes more than the options allow
    ├── DoesNotFitError              the program needs more than the target has
    ├── BudgetError                  the program costs more than its user allows
    ├── ArchiveError                 the file is not an archive that can be loaded
    │   ├── CorruptArchiveError      damaged, truncated or hostile content
    │   ├── SignatureError           not signed by whom it should be
    │   ├── IncompatibleArchiveError written for another format version
    │   └── UnregisteredOperatorError it needs operators that were not registered
    ├── CheckpointError              not a checkpoint, damaged, or of another model
    ├── InputMismatchError           run-time inputs differ from what was compiled
    ├── DeviceError                  the emulated device failed while running
    │   ├── GroupError               another process has died, failed, or does something else
    │   ├── RunTimeoutError          a run took longer than its caller allows
    │   └── StreamError              a stream had nothing to give or no room to take
    │       ├── StreamUnderrunError
    │       └── StreamTimeoutError
    ├── ResourceError                the file system or the memory of the host failed
    └── ServingError                 a server does not answer a request now
        ├── NotServedError           it has no such model, or the model is not ready
        ├── OverloadedError          too much waits already
        └── RequestTooLargeError     the request is larger than it accepts

The tree lives in the runtime because the runtime must not import the compiler; the compiler raises
the model and option branches.  ``exit_code`` is what the command line returns for the class.
"""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Any, ClassVar, Self

__all__ = [
    "ArchiveError",
    "BudgetError",
    "CheckpointError",
    "CorruptArchiveError",
    "DataDependentShapeError",
    "DeviceError",
    "DoesNotFitError",
    "GroupError",
    "IncompatibleArchiveError",
    "InputMismatchError",
    "ModelError",
    "NotServedError",
    "OptionError",
    "OverloadedError",
    "PopcError",
    "RequestTooLargeError",
    "ResourceError",
    "RunTimeoutError",
    "ServingError",
    "SignatureError",
    "SpokenHint",
    "StreamError",
    "StreamTimeoutError",
    "StreamUnderrunError",
    "TooMuchWorkError",
    "UnregisteredOperatorError",
    "UnsupportedOpError",
    "UsageError",
]


class SpokenHint(str):
    """A hint in Python's words that has other words on the command line.

    Attributes:
        command_line: The words there.
    """

    __slots__ = ("command_line",)
    command_line: str

    def __new__(cls, python: str, command_line: str) -> Self:
        """Both, in this order."""
        made = super().__new__(cls, python)
        made.command_line = command_line
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return SpokenHint, (str(self), self.command_line)


class PopcError(Exception):
    """Base of every error raised on purpose.

    Attributes:
        message: What is wrong, one sentence, no trailing advice.
        subject: Where: the op, tensor, option, stream or file concerned ("" if none).
        hint: What to do about it ("" if nothing can be advised); a `SpokenHint` where the command
            line says it otherwise than Python.
        details: Further lines, one per problem, when several are reported at once.
    """

    code: ClassVar[str] = "popc.error"
    exit_code: ClassVar[int] = 70

    def __init__(
        self, message: str, *, subject: str = "", hint: str = "", details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        lines = [self.message, *(f"  {line}" for line in self.details)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only state do not survive pickling (run_async, pools) by default.
        return (_rebuild, (type(self), self.message, self.subject, self.hint, self.details))


def _rebuild(
    cls: type[PopcError], message: str, subject: str, hint: str, details: tuple[str, ...]
) -> PopcError:
    return cls(message, subject=subject, hint=hint, details=details)


class UsageError(PopcError):
    """A wrong argument to a command or a function."""

    code = "usage"
    exit_code = 2


class OptionError(PopcError):
    """An unknown, ill-typed or conflicting option; ``details`` lists every problem."""

    code = "option"
    exit_code = 2


class ModelError(PopcError):
    """The ONNX model is not valid or cannot be compiled."""

    code = "model"
    exit_code = 3


class UnsupportedOpError(ModelError):
    """The model uses operators that popc does not know; ``details`` lists all of them."""

    code = "model.unsupported-op"


class DataDependentShapeError(ModelError):
    """Shapes depend on run-time values; ``details`` lists every such op."""

    code = "model.data-dependent-shape"


class TooMuchWorkError(ModelError):
    """The import was given up: it would take more work than the options allow."""

    code = "model.too-much-work"


class _ReportedError(PopcError):
    """An error about what a program takes.

    Attributes:
        report: What it takes, and what is known beyond the other attributes, as plain data.
    """

    def __init__(
        self,
        message: str,
        *,
        subject: str = "",
        hint: str = "",
        details: tuple[str, ...] = (),
        report: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, subject=subject, hint=hint, details=details)
        self.report = dict(report or {})

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"report": self.report})


class DoesNotFitError(_ReportedError):
    """The program needs more memory or tiles than the target has."""

    code = "does-not-fit"
    exit_code = 4


class BudgetError(_ReportedError):
    """The program costs more than its user allows: done, and the answer is no."""

    code = "budget"
    exit_code = 1


class ArchiveError(PopcError):
    """The file is not an archive that this runtime can load."""

    code = "archive"
    exit_code = 5


class CorruptArchiveError(ArchiveError):
    """Damaged, truncated or hostile content."""

    code = "archive.corrupt"


class IncompatibleArchiveError(ArchiveError):
    """The archive was written for another format version."""

    code = "archive.incompatible"


class UnregisteredOperatorError(ArchiveError):
    """The program needs custom operators that were not registered; ``details`` lists them."""

    code = "archive.unregistered-operator"


class SignatureError(ArchiveError):
    """An archive is not signed, by others than it should be, or has changed since."""

    code = "archive.signature"


class CheckpointError(PopcError):
    """The file is no checkpoint, is damaged, or belongs to another model."""

    code = "checkpoint"
    exit_code = 5


class InputMismatchError(PopcError):
    """Run-time inputs differ in name, dtype or shape from what was compiled."""

    code = "run.input-mismatch"
    exit_code = 6


class DeviceError(PopcError):
    """The emulated device failed while running a program."""

    code = "run.device"
    exit_code = 6


class RunTimeoutError(DeviceError):
    """A run took longer than its caller allows; names the instruction that it was stopped in.

    The executable stays usable, unless the run had begun to write variables: then it says so when
    it is to run again, until their values have been restored.
    """

    code = "device.timeout"


class GroupError(DeviceError):
    """Another process of a group has died, has failed, or is not at the same place; names it."""

    code = "run.group"


class StreamError(DeviceError):
    """A stream had nothing to give or no room to take."""

    code = "run.stream"


class StreamUnderrunError(StreamError):
    """The source of an input stream ended before the step did."""

    code = "run.stream-underrun"


class StreamTimeoutError(StreamError):
    """A stream waited longer than its time-out."""

    code = "run.stream-timeout"


class ResourceError(PopcError):
    """The file system or the memory of the host failed."""

    code = "resource"
    exit_code = 7


class ServingError(PopcError):
    """A server does not answer a request, at least not now."""

    code = "serving"
    exit_code = 7


class NotServedError(ServingError):
    """A server has no such model or version, or it is not ready; `is_known` tells which.

    Attributes:
        is_known: Whether the server has it, so that asking again later makes sense.
    """

    code = "serving.not-served"

    def __init__(
        self,
        message: str,
        *,
        subject: str = "",
        hint: str = "",
        details: tuple[str, ...] = (),
        is_known: bool = True,
    ) -> None:
        super().__init__(message, subject=subject, hint=hint, details=details)
        self.is_known = is_known

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"is_known": self.is_known})


class OverloadedError(ServingError):
    """Too many requests, or too many bytes of them, wait already."""

    code = "serving.overloaded"


class RequestTooLargeError(ServingError):
    """A request is larger than the server accepts."""

    code = "serving.too-large"
