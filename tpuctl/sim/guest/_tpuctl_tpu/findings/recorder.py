"""Records findings: prints each once on stderr with the user's line, writes the report, and raises errors."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import ModuleType

from ..hooks import TensorFlow
from ..tf_objects import Frame, Operation

FIXES = {
    "UNSUPPORTED_OP": (
        "Move it to the input pipeline (tf.data runs on the host), or call "
        "tf.config.set_soft_device_placement(True) and pay a trip to the host on each step."
    ),
    "HOST_OP": "Move it to the input pipeline, or do it once in many steps.",
    "STRING_INPUT": "Drop the strings or turn them into numbers in the input pipeline.",
    "RAGGED_INPUT": (
        "Pad to a fixed length (to_tensor(shape=...), padded_batch), or distribute with "
        "tf.distribute.InputOptions(experimental_fetch_to_device=False)."
    ),
    "SPARSE_INPUT": (
        "Make them dense (tf.sparse.to_dense), or distribute with "
        "tf.distribute.InputOptions(experimental_fetch_to_device=False)."
    ),
    "UNKNOWN_RANK": "State its shape in the input pipeline (tf.ensure_shape, set_shape).",
    "FLOAT64": (
        "Use float32 or bfloat16. NumPy makes float64 by default: use astype('float32'), or tf.cast "
        "in the input pipeline."
    ),
    "DYNAMIC_SHAPE": (
        "Pad to a fixed length, or to a few lengths (padded_batch with padded_shapes, "
        "bucket_by_sequence_length)."
    ),
    "PARTIAL_BATCH": (
        "Call batch(..., drop_remainder=True) for training. For evaluation choose a batch size that "
        "divides the number of examples."
    ),
    "UNEVEN_BATCH": "Make the global batch a multiple of strategy.num_replicas_in_sync.",
    "RECOMPILATION": "Pass tensors in place of Python numbers, and inputs of one shape and type.",
    "OUTSIDE_SCOPE": "Create model, metrics and optimizer inside 'with strategy.scope():'.",
    "HOST_VARIABLE": "Create the variable inside 'with strategy.scope():', or pass its value as an argument.",
    "HOST_TRAINING": "Create and compile the model inside 'with strategy.scope():'.",
    "LOCAL_PATH": (
        "Use a gs:// path; for checkpoints also CheckpointOptions(experimental_io_device='/job:localhost')."
    ),
    "NOT_INITIALIZED": "Connect and initialize first, before any other use of TensorFlow.",
    "NO_SUCH_CORE": "Take names from tf.config.list_logical_devices('TPU').",
}
"""Code of a finding -> what to do; docs/findings.md says what each means."""
SCHEMA = 1
NAME = "findings.json"


class Report:
    """A file that is always complete: each write replaces it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()
        self._failed = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Report:
        """Take the file TPUCTL_SIM_FINDINGS, else one in the folder TPUCTL_REPORT_DIR, else none."""
        if path := environ.get("TPUCTL_SIM_FINDINGS"):
            if "://" in path:
                raise ValueError(f"TPUCTL_SIM_FINDINGS={path} is not a path on this machine.")
            return cls(os.path.abspath(path))
        folder = environ.get("TPUCTL_REPORT_DIR")
        return cls(_unused(folder) if folder else "")

    def write(self, content: Mapping[str, object]) -> None:
        """Write `content`; a file that cannot be written costs one line on stderr, not the program."""
        if not self._path or os.getpid() != self._process:  # a forked child has its parent's findings
            return
        draft = f"{self._path}.{self._process}.part"
        try:
            with open(draft, "w", encoding="utf-8") as stream:
                json.dump({"schema": SCHEMA, **content}, stream, indent=1)
                stream.write("\n")
            os.replace(draft, self._path)
        except OSError as error:
            if not self._failed:
                say(f"[tpu-sim] the findings cannot be written to {self._path}: {error.strerror or error}")
            self._failed = True


def say(line: str) -> None:
    """Write one line to stderr."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed, or none: a daemon
        pass


def _unused(folder: str) -> str:
    """The report's name in `folder`; with this process's number if another program has written one."""
    path = os.path.join(os.path.abspath(folder), NAME)
    return path if not os.path.exists(path) else os.path.join(folder, f"findings-{os.getpid()}.json")


_GUEST = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = ("<frozen ", "<__array_function__")
_AUTOGRAPH = "__autograph_generated_file"


@dataclass(frozen=True)
class Place:
    """A line of a program; both empty where it is not known."""

    file: str = ""
    line: int = 0

    def __bool__(self) -> bool:
        return bool(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(place unknown)"


class Places:
    """Finds the user's line in TensorFlow's view of the stack, which undoes AutoGraph's rewriting."""

    def __init__(self, stack: ModuleType) -> None:
        self._stack = stack
        self._around = Place()

    def here(self) -> Place:
        """Return the innermost line of the user's program that is being run."""
        return self._innermost(self._stack.extract_stack()) or self._around

    @contextmanager
    def around(self) -> Iterator[None]:
        """Use this line for threads that have no line of the user's meanwhile."""
        before, self._around = self._around, self.here()
        try:
            yield
        finally:
            self._around = before

    def of_operation(self, operation: Operation) -> Place:
        """Return the innermost line of the user's program that made an operation of a graph."""
        return self._innermost(operation.traceback or ())

    def _innermost(self, frames: Iterable[Frame]) -> Place:
        for frame in reversed(list(frames)):
            if _is_users(frame.filename):
                return Place(_shortest(frame.filename), frame.lineno)
        return Place()


def _is_users(file: str) -> bool:
    if file.startswith(_GENERATED) or _AUTOGRAPH in file:
        return False
    absolute = os.path.abspath(file)
    return not (
        absolute.startswith((_GUEST, _STANDARD_LIBRARY)) or any(part in absolute for part in _INSTALLED)
    )


def _shortest(file: str) -> str:
    """The path from the current folder, where the file is in it."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the folder was deleted, or is on another drive
        return file
    return file if relative.startswith(os.pardir) or file.startswith("<") else relative


MODES = ("off", "warn", "error")


@dataclass(frozen=True)
class Settings:
    """The treatment of findings, one of MODES, and their report."""

    checks: str
    report: Report

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read TPUCTL_SIM_CHECKS and what Report reads; raises ValueError."""
        checks = environ.get("TPUCTL_SIM_CHECKS") or "warn"
        if checks not in MODES:
            raise ValueError(f"TPUCTL_SIM_CHECKS={checks} is not one of {', '.join(MODES)}.")
        return cls(checks, Report.from_environment(environ))


class SlowOnTPUError(Exception):
    """Code that a TPU runs slowly, if TPUCTL_SIM_CHECKS=error."""


@dataclass
class Finding:
    """One finding at one place."""

    code: str
    refused: bool
    file: str
    line: int
    count: int
    text: str
    fix: str


class Findings:
    """The findings of this process; `about` stands at the head of their report."""

    def __init__(self, settings: Settings, tensorflow: TensorFlow, about: dict[str, object]) -> None:
        self.checks = settings.checks
        self.places = Places(tensorflow.stack)
        self.used = False
        """Whether the program has used the TPU: else there is nothing to report on."""
        self._report = settings.report
        self._about = {"tensorflow": tensorflow.tf.__version__, **about, "checks": settings.checks}
        self._found: dict[tuple[str, Place, str], Finding] = {}
        self._signatures: dict[int, dict[str, object]] = {}
        self._lock = threading.RLock()
        if self.checks != "off":
            atexit.register(self.close)

    def refuse(self, code: str, text: str, error: BaseException, place: Place | None = None) -> None:
        """Record code that a TPU refuses, and raise the TPU's error."""
        self.record(code, text, place)
        if self.checks != "off":
            raise error

    def slow(self, code: str, text: str, place: Place | None = None, subject: str = "") -> None:
        """Record code that a TPU runs slowly; raises SlowOnTPUError if TPUCTL_SIM_CHECKS=error."""
        finding = self.record(code, text, place, subject, refused=False)
        if self.checks == "error":
            raise SlowOnTPUError(f"{code}: {finding.text}. {finding.fix} (TPUCTL_SIM_CHECKS=error)")

    def record(
        self, code: str, text: str, place: Place | None = None, subject: str = "", *, refused: bool = True
    ) -> Finding:
        """Record a finding; `subject` distinguishes findings of one code at one place."""
        place = place or self.places.here()
        with self._lock:
            key = (code, place, subject)
            earlier = self._found.get(key)
            if earlier is not None:
                earlier.count += 1
                return earlier
            finding = Finding(code, refused, place.file, place.line, 1, text, FIXES[code])
            if self.checks != "off":
                self._found[key] = finding
                say(f"[tpu-sim] {code} {place}: {text}. {FIXES[code]}")
                self._write()
        return finding

    def traced(self, function: int, name: str, place: Place, signatures: int) -> None:
        """Note for how many signatures a function was traced."""
        with self._lock:
            self._signatures[function] = {
                "function": name,
                "file": place.file,
                "line": place.line,
                "signatures": signatures,
            }

    def close(self) -> None:
        """Write the report for the last time, unless it is empty."""
        with self._lock:
            if self.used or self._found:
                self._write()

    def _write(self) -> None:
        self._report.write(
            {
                **self._about,
                "traced": list(self._signatures.values()),
                "findings": [asdict(finding) for finding in self._found.values()],
            }
        )
