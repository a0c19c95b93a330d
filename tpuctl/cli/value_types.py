"""The types of arguments and options that several commands take."""

from __future__ import annotations

import os
import re
import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import click

from tpuctl import accelerators, durations
from tpuctl.bucket_layout import split_gs
from tpuctl.cli import output
from tpuctl.errors import UsageError

EXAMPLE = "2026-01-31T18:00:00Z"
ZONE = re.compile(r"T[^T]*[+-]\d\d:?\d\d$")
LAST_YEAR = 2200
"""Of times that people mean."""


class AcceleratorType(click.ParamType[str]):
    """An accelerator type, which may be typed with another name of its generation."""

    name = "accelerator"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the API's name, and say on stderr which it is if another was typed."""
        return self.named(accelerators.known(value).type, value)

    def named(self, name: str, typed: str) -> str:
        """Return the API's name."""
        if name != typed.lower():
            output.note(f"{typed} is {name} in the Cloud TPU API.")
        return name


class OfferedAccelerator(AcceleratorType):
    """An accelerator type that the API offers, whether the catalogue knows it or not."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the API's name."""
        return self.named(accelerators.accelerator(value).type, value)


class AcceleratorOrGeneration(OfferedAccelerator):
    """Such a type, or a generation (`v4`) whose size the topology says."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the API's name of a type, or the generation as it is."""
        return value if accelerators.is_generation(value) else super().convert(value, param, ctx)


class Moment(click.ParamType[timedelta | datetime]):
    """A time in the future: a duration from now such as `6h`, or ISO-8601 with its zone."""

    name = "moment"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta | datetime:
        """Return what was typed: the services know later what the time is now. Fails for any other text."""
        try:
            seconds = durations.parse(value)
        except ValueError:
            return self._moment(value, param, ctx)
        if seconds > durations.LONGEST:
            return self._moment(value, param, ctx)
        return timedelta(seconds=seconds)

    def _moment(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        text = re.sub("[zZ]$", "+00:00", value)
        try:
            moment = datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            moment = None
        if moment is None or not ZONE.search(text) or moment.year >= LAST_YEAR:
            self.fail(f"'{value}' is neither a duration such as 6h nor a time such as {EXAMPLE}.", param, ctx)
        return moment


class LocalPath(click.Path):
    """A path on this machine; a URI is refused with the command that copies."""

    def __init__(self, *, is_written: bool = False) -> None:
        super().__init__(path_type=Path)
        self._is_written = is_written

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return a path; raises UsageError for a URI."""
        uri = str(value)
        if not re.match(r"[a-z][a-z0-9+.-]*://", uri):
            return Path(value)
        name = param.opts[0] if isinstance(param, click.Option) else str(param and param.human_readable_name)
        raise self._refusal(uri, name)

    def _refusal(self, uri: str, name: str) -> UsageError:
        is_object, quoted = uri.startswith("gs://"), shlex.quote(uri)
        place = "in a bucket" if is_object else "a URL"
        if self._is_written:
            return UsageError(
                f"{uri} is {place}, and {name} is written on this machine.",
                hint=f"Give a path here, and copy it afterwards: gcloud storage cp -r PATH {quoted}",
            )
        copy = f"gcloud storage cp -r {quoted} ." if is_object else f"curl -LO {quoted}"
        return UsageError(
            f"{uri} is {place}, and {name} is read from this machine.",
            hint=f"Copy it first, and give the path of the copy: {copy}",
        )


class Duration(click.ParamType[int]):
    """A duration such as `30m`, `6h` or `1h30m`, in seconds."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds; fails for any other text."""
        if isinstance(value, int):
            return value
        try:
            seconds = durations.parse(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if seconds > durations.LONGEST:
            self.fail(f"'{value}' is more than a century.", param, ctx)
        return seconds


class Amount(click.ParamType[Decimal]):
    """An amount of money, such as `20` or `7.50`."""

    name = "amount"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        """Return the amount; fails for any other text."""
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", str(value)):
            self.fail(f"'{value}' is not an amount such as 20 or 7.50.", param, ctx)
        return Decimal(value)


class Source(click.ParamType[str]):
    """What a dataset is made of: a path on this machine, or `gs://BUCKET/NAME`."""

    name = "path"

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return a path or a URI; raises UsageError for a URI of another kind, and one without a bucket."""
        if str(value).startswith("gs://"):
            split_gs(str(value))
            return str(value)
        return str(LocalPath().convert(value, param, ctx))


ACCELERATOR = AcceleratorType()
ACCELERATOR_OR_GENERATION = AcceleratorOrGeneration()
OFFERED_ACCELERATOR = OfferedAccelerator()
AMOUNT = Amount()
DURATION = Duration()
MOMENT = Moment()
SOURCE = Source()
LOCAL_PATH = LocalPath()
"""A file or folder that the command reads."""
OUTPUT_PATH = LocalPath(is_written=True)
"""A file or folder that the command writes."""
