"""Defines the error tree: each class has an exit code; each error has a message and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

__all__ = [
    "ConfigError", "ConflictError", "DeadlineError", "DeclinedError", "HostError", "InterruptedByUser",
    "JobFailedError", "NotFoundError", "PreemptedError", "QuotaError", "StateError", "StockoutError",
    "TpuctlError", "UsageError",
]  # fmt: skip
"""The errors of the Python API."""

EXIT_CODES = {
    "ok": 0,
    "bug": 1,
    "usage": 2,
    "configuration": 3,
    "state": 4,
    "stockout": 5,
    "quota": 6,
    "preempted": 7,
    "host": 8,
    "timeout": 9,
    "declined": 10,
    "job": 100,
    "interrupted": 130,
}


class TpuctlError(Exception):
    """A failure with one sentence for the user, a hint of what to do next, and an exit code.

    `facts` go into the JSON form of the error, so that a program need not parse the sentence. The text of the
    error, `str(error)`, and its notes steer no terminal; `message` and `hint` are raw, as a host or an object
    in the bucket may have said them.
    """

    kind: str = "bug"
    message: str
    hint: str
    facts: dict[str, object]
    result: Mapping[str, object] = {}
    """What the command shows although it failed; stands beside the error in the JSON form."""

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        from tpuctl import printable  # noqa: PLC0415  importing tpuctl imports no other module

        return printable.block(self.message)

    def add_note(self, note: str, /) -> None:
        """Add a note that tracebacks show."""
        from tpuctl import printable  # noqa: PLC0415  as above

        super().add_note(printable.block(note))

    @property
    def exit_code(self) -> int:
        """The process's exit code for this kind of failure."""
        return EXIT_CODES[self.kind]


class UsageError(TpuctlError):
    """The command line, or an argument of a call, is wrong: an unknown accelerator, a missing file."""

    kind = "usage"


class ConfigError(TpuctlError):
    """Configuration, credentials, permission or a disabled API stand in the way."""

    kind = "configuration"


class StateError(TpuctlError):
    """A resource is missing, exists already, or is in the wrong state."""

    kind = "state"


class NotFoundError(StateError):
    """The API answered that the resource does not exist; no other failure counts as that."""


class BucketMissingError(NotFoundError):
    """The bucket itself does not exist."""


class ConflictError(StateError):
    """The resource exists already, or another client changed it first."""


class StockoutError(TpuctlError):
    """The zone has no free capacity of this type."""

    kind = "stockout"


class QuotaError(TpuctlError):
    """The project's quota does not allow it."""

    kind = "quota"


class PreemptedError(TpuctlError):
    """Google took the machine back."""

    kind = "preempted"


class HostError(TpuctlError):
    """A TPU host, or the SSH connection to it, failed."""

    kind = "host"


class DeadlineError(TpuctlError):
    """It took longer than the caller allowed."""

    kind = "timeout"


class ServiceError(DeadlineError):
    """The service answered that it has failed itself (INTERNAL): in another zone, or later, it may not."""


class DeclinedError(TpuctlError):
    """The user declined, or the command is not interactive."""

    kind = "declined"


class JobFailedError(TpuctlError):
    """The user's program ended with a failure of its own."""

    kind = "job"


class InterruptedByUser(TpuctlError):
    """Ctrl-C, or the `Stop` of a call: the message says what keeps running, the hint how to come back."""

    kind = "interrupted"


def joined_hints(*hints: str) -> str:
    """Return several hints as one, a line each: no line has two commands, and each can be copied."""
    return "\n".join(filter(None, hints))


def in_one_line(error: TpuctlError) -> str:
    """Return the message and the hint of an error, for where there is no room for lines."""
    return f"{error.message} {error.hint}".strip().replace("\n", "; ")


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an error of any kind, with nothing in it that steers a terminal."""
    from tpuctl import printable  # noqa: PLC0415  as above

    error.add_note(printable.block(text))


def cause(error: BaseException) -> BaseException | None:
    """Return an error of a library as the cause of one of tpuctl's.

    None if what Python's tracebacks would show of it, or of what has caused it, steers a terminal: its text
    may be that of a host, a service or an object.
    """
    from tpuctl import printable  # noqa: PLC0415  as above

    for each in chain(error):
        text = "\n".join([str(each), *getattr(each, "__notes__", ())])
        if printable.block(text) != text.replace("\r\n", "\n"):
            return None
    return error


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what has caused it, as Python's tracebacks show it, each once."""
    seen = set[int]()
    while error and id(error) not in seen:  # a cause that is raised again, from its effect, is a ring
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def say_bill(error: Exception, sentence: str, commands: str, may_bill: list[str]) -> None:
    """Add what bills now, and the commands that resume and end it, to an error that does not say so itself.

    To one that is none of tpuctl's, a bug or a full disk, as a note.
    """
    if not isinstance(error, TpuctlError):
        add_note(error, f"{sentence} {commands}")
    elif "may_bill" not in error.facts:
        error.message = f"{error.message} {sentence}"
        error.hint = joined_hints(error.hint, commands)
        error.facts["may_bill"] = may_bill


@contextmanager
def saying_bill(name: str, zone: str, commands: str) -> Iterator[None]:
    """Let whatever ends the block say that a node bills, Ctrl-C too: then InterruptedByUser is raised."""
    sentence, may_bill = f"Node '{name}' in {zone} bills.", [f"{name} in {zone}"]
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUser(f"Interrupted. {sentence}", hint=commands, may_bill=may_bill) from interrupt
    except Exception as error:
        say_bill(error, sentence, commands, may_bill)
        raise


def nearest(typed: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names that a user who typed `typed` most likely meant, best first; case matters least."""
    from difflib import get_close_matches  # noqa: PLC0415  only on the way to an error

    offered = list(names)
    same = [name for name in offered if name.casefold() == typed.casefold()]
    return list(dict.fromkeys([*same, *get_close_matches(typed, offered, n=most, cutoff=0.5)]))[:most]
