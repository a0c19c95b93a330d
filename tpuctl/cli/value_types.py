"""The types of arguments and options that several commands take."""

from __future__ import annotations

import click

from tpuctl import accelerators
from tpuctl.cli import output


class AcceleratorType(click.ParamType[str]):
    """An accelerator type, which may be typed with another name of its generation."""

    name = "accelerator"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the API's name, and say on stderr which it is if another was typed."""
        name = accelerators.accelerator(value).type
        if name != value.lower():
            output.note(f"{value} is {name} in the Cloud TPU API.")
        return name


ACCELERATOR = AcceleratorType()
