"""Tests that what an option of a command says can be said in Python, too: a new option is not forgotten."""

from __future__ import annotations

import click
import pytest

from tpuctl import NodeOptions, SubmitOptions, UploadOptions
from tpuctl.cli.datasets.upload import upload
from tpuctl.cli.nodes.up import up
from tpuctl.cli.runs.submit import submit

OF_THE_CLIENT = {"target", "project", "bucket", "zone", "iap"}
"""Options that arguments of the client are."""
OF_THE_COMMAND = {"as_json", "dry_run", "yes"}
"""Options that say how a command asks and shows."""
RENAMED = {
    up: {"accelerator": "", "boot_disk": ""},
    submit: {
        "script": "", "arguments": "", "is_attached": "", "tpu": "node", "env_files": "", "policy": "busy",
        "stored": "store_environment",
    },
    upload: {
        "name": "", "source": "", "split": "splits", "kind": "format", "runner": "", "beam_options": "",
    },
}  # fmt: skip
"""Parameters with another name in Python, or empty for those that are arguments there, or have no use."""


@pytest.mark.parametrize(
    ("command", "options"), [(up, NodeOptions), (submit, SubmitOptions), (upload, UploadOptions)]
)
def test_every_option_of_a_command_is_one_in_python(command: click.Command, options: type) -> None:
    names = {str(param.name) for param in command.params} - OF_THE_CLIENT - OF_THE_COMMAND
    renamed = RENAMED[command]
    expected = {renamed.get(name, name) for name in names} - {""}
    assert set(options.__annotations__) == expected
