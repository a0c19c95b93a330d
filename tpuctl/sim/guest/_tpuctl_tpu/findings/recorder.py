"""Records findings: prints each once on stderr, writes it to the report, and raises an error if it is one."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ..hooks import TensorFlow
from .catalogue import KINDS
from .places import Place, Places
from .report import Report, say

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
        kind = KINDS[code]
        place = place or self.places.here()
        with self._lock:
            key = (code, place, subject)
            earlier = self._found.get(key)
            if earlier is not None:
                earlier.count += 1
                return earlier
            finding = Finding(code, refused, place.file, place.line, 1, text, kind.fix)
            if self.checks != "off":
                self._found[key] = finding
                say(f"[tpu-sim] {code} {place}: {text}. {kind.fix}")
                self._write()
        return finding

    def traced(self, function: int, name: str, place: Place, signatures: int) -> None:
        """Note for how many signatures a function was traced."""
        with self._lock:
            self._signatures[function] = {
                "function": name, "file": place.file, "line": place.line, "signatures": signatures,
            }  # fmt: skip

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
