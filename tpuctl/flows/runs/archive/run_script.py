"""Writes run.sh of an archive: the script with its arguments and variables, and folders for the bucket's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from tpuctl.job_header import Header
from tpuctl.masking.text import MASK
from tpuctl.runs import NOT_STORED, Run
from tpuctl.text import printable

FOLDERS = (
    ("TPUCTL_MODEL_DIR", "AIP_MODEL_DIR", "outputs"),
    ("TPUCTL_CHECKPOINT_DIR", "AIP_CHECKPOINT_DIR", "checkpoints"),
    ("TPUCTL_TENSORBOARD_DIR", "AIP_TENSORBOARD_LOG_DIR", "tensorboard"),
)
"""As hosts have them: worker/preparation/environment.py."""
BEGINNING = """#!/bin/sh
# Runs the script of run {run} as it was run, with folders beside this file in place of the bucket.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=${{RESULTS:-"$here/results"}}
"""


def missing_variables(record: Run, header: Header) -> list[str]:
    """Return the variables whose values are recorded nowhere: whoever runs the archive gives them."""
    known = _known_variables(record, header)
    return sorted(name for name in record.environment if name not in known)


def is_variable(name: str) -> bool:
    """Whether a shell can set a variable of this name."""
    return name.isidentifier() and name.isascii()


def missing_arguments(record: Run) -> list[int]:
    """Return which arguments, counted from 1, are not stored, as they look like secrets."""
    return [number for number, argument in enumerate(record.arguments, start=1) if MASK in argument]


def run_script(record: Run, header: Header) -> str:
    """Return run.sh."""
    lines = [*_folders(), *_variables(record, header)]
    for number in missing_arguments(record):
        lines.append(f"# Argument {number} is not stored, as it looks like a secret.")
        lines.append(f': "${{ARGUMENT_{number}:?argument {number} of the script, which was not stored}}"')
    if record.setup:
        lines.append(f"# The hosts ran before: {ascii(record.setup)[1:-1]}")
    words = [
        f'"$ARGUMENT_{number}"' if MASK in argument else _word(argument)
        for number, argument in enumerate(record.arguments, start=1)
    ]
    lines += [
        'cd "$here/code"',
        " ".join(['exec "${PYTHON:-$here/.venv/bin/python}"', _script(record), *words]),
    ]
    return BEGINNING.format(run=record.run) + "\n".join(lines) + "\n"


def _script(record: Run) -> str:
    """Return the path of the script, which Python takes for no option."""
    return _word(f"./{record.script}" if record.script.startswith("-") else record.script)


def _folders() -> Iterator[str]:
    for own, vertex, folder in FOLDERS:
        yield f'mkdir -p "$results/{folder}"'
        yield f'export {own}="$results/{folder}" {vertex}="$results/{folder}"'


def _variables(record: Run, header: Header) -> Iterator[str]:
    yield f"export TPUCTL_RUN={record.run} TPUCTL_ATTEMPT=1 TPUCTL_WORKER=0 TPUCTL_WORKERS=1"
    yield "export PYTHONUNBUFFERED=1"
    yield f"export TPUCTL_ACCELERATOR={_word(record.accelerator)}"
    if record.framework == "tensorflow":
        yield 'export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"'
    if record.dataset:
        yield f'export TPUCTL_DATA_DIR="${{TPUCTL_DATA_DIR:-$here/data/{record.dataset}}}"'
    for name, value in sorted(_known_variables(record, header).items()):
        yield f"export {name}={_word(value)}"
    for name in filter(is_variable, missing_variables(record, header)):
        yield f': "${{{name}:?a variable of the script, whose value was not stored}}"'


def _known_variables(record: Run, header: Header) -> Mapping[str, str]:
    """Return the variables of the script whose values are stored, in the header, or seeds."""
    known = {}
    for name, stored in record.environment.items():
        seed, own = record.seeds.get(name), header.tpuctl.env.get(name)
        value = stored if stored != NOT_STORED else seed if seed is not None else own
        if value is not None and MASK not in value and is_variable(name):
            known[name] = value
    return known


def _word(text: str) -> str:
    """Return text as one word of a shell that a terminal shows as it is: other characters are octal bytes."""
    if printable.line(text) == text:
        return shlex.quote(text)
    body = text.rstrip("\n")  # which a substitution leaves out
    shown = "".join(character if _is_plain(character) else _octal(character) for character in body)
    return f"\"$(printf '{shown}')\"" + "'\n'" * (len(text) - len(body))


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isprintable() and character not in "'%\\"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))
