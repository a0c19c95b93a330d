"""Generates docs/errors.md from the tables: `python -m tpuctl.cloud.tpu.error_document docs/errors.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.rpc import code_pb2

from tpuctl.cloud import storage
from tpuctl.cloud.error_mapping import EVERY_SERVICE, OWN_FAILURE, Row
from tpuctl.cloud.tpu.error_mapping import CREATION_ROWS, ROWS
from tpuctl.errors import EXIT_CODES

INTRODUCTION = """\
# Errors: what Google answers, what you read, what to type next

<!-- Written by `python -m tpuctl.cloud.tpu.error_document`; a test compares. -->

After this page you can tell a stockout from a quota that was never granted, and find the next command for
each. The first row that fits decides: by code and reason or detail, where Google sends one, else by text;
what fits by the code alone comes last. `tests/cloud/sentences.toml` has real answers and their sources.
ANSWER stands for Google's own words, RESOURCE for the node, queued resource, zone or object that the request
was about, other words in capitals for what the answer names. Where you read no ANSWER, it is put behind the
message if it says more. `--json` has the same error as an object, with `kind`, `exit_code`, Google's words as
`words` and, where Google sends one, `reason`.

Where a service does not answer, the message names the host and the cause (`oauth2.googleapis.com: Name or
service not known`). `--debug`, or `TPUCTL_DEBUG=1`, shows on stderr each request of a command, a line each:
method and URL, RPC and resource, or what is done on which host by SSH; then code, milliseconds and attempt.
No body, no header, no argument of a program and no value of an unknown parameter is in a line. A
program that uses the Python API has the same lines in the logger `tpuctl.requests`, at level DEBUG.
"""
SHOWN = {
    # field of a row -> what stands for it
    "words": "ANSWER",
    "subject": "RESOURCE",
    "where": "It is available in ZONES: tpuctl up TYPE --zone ZONE",
    "heed": "OPTION Ask its administrator for an exception.",
    "which": "This quota of the ZONE OR REGION",
    "besides": " What else has a quota of its own.",
    "enable": "gcloud services enable SERVICE --project PROJECT, or at PAGE",
}
HEAD = "| Google answers | code | you read | next | exit code |\n|---|---|---|---|---|"


def document() -> str:
    """Return the text of docs/errors.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Cloud TPU API: a request that creates\n"
    yield from _table(CREATION_ROWS)
    yield "\n## Cloud TPU API: every request\n"
    yield from _table(ROWS)
    yield "\n## Cloud Storage\n"
    yield from _table(storage.ROWS)
    yield "\n## Every service, Cloud Storage included\n"
    yield from _table((*EVERY_SERVICE, OWN_FAILURE))


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield HEAD
    for row in rows:
        yield (
            f"| {_cell(row.answer)} | {_codes(row)} | {_cell(row.message)} | {_cell(row.hint)} "
            f"| {EXIT_CODES[row.error.kind]} ({row.error.kind}) |"
        )


def _codes(row: Row) -> str:
    names = [*map(code_pb2.Code.Name, row.codes), row.reason, row.detail]
    return ", ".join(filter(None, names)) or "any other"


def _cell(text: str) -> str:
    text = re.sub(r"\{(\w+)\}", lambda field: SHOWN.get(field[1], field[1].upper()), text)
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document())
