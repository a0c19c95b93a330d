"""Keeps on this machine what a run was submitted with, for restarts: its record, and what that leaves out.

Whoever may write to the bucket may write a record. What is kept here says which are this user's own: watchers
start no others without a question or limits, and the values go to nothing else than what was submitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tpuctl import atomic_files, bucket_objects
from tpuctl.config.files import state_folder
from tpuctl.errors import ConfigError, UsageError, joined_hints
from tpuctl.flows.nodes.lifetime import users_script
from tpuctl.flows.runs.submission.restart_policy import users_metadata
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.local.private_folder import make_private_folder
from tpuctl.masking import MASK
from tpuctl.nodes import Node
from tpuctl.recovery import Machine
from tpuctl.runs import NOT_STORED, Run, Tpu

if TYPE_CHECKING:
    from tpuctl.flows.runs.submission.plan import SubmitPlan

LARGEST = 16 << 20
"""Bytes of a file of values."""
MOST_FILES = 1000
"""Runs of which something is kept, the newest."""


class LaunchValues(msgspec.Struct, frozen=True):
    """What one run was started with."""

    record: Run
    """What run.json said."""
    tpu: Tpu
    """The node to which it was submitted."""
    arguments: tuple[str, ...]
    dependencies: tuple[str, ...]
    environment: dict[str, str]
    setup: str
    metadata: dict[str, str] = {}
    """Of the machine."""
    startup_script: str = ""
    is_confirmed: bool = False
    """Whether it was submitted elsewhere, and somebody said here that it may be started again."""


def keep(bucket: str, run: Run, plan: SubmitPlan) -> list[str]:
    """Write the record of a run that may be started again, and what it leaves out, into a private file.

    A disk that takes no file keeps nobody from a submission, nor does a former record with another machine:
    a restart asks first then, for the values by name. Returns the sentence that says so.
    """
    if not run.restarts:
        return []
    start = plan.launch
    hidden = {name: start.environment[name] for name, value in run.environment.items() if value == NOT_STORED}
    metadata, script = _hidden_settings(run.machine, plan.node)
    values = LaunchValues(
        run, Tpu.of(plan.node), start.arguments, start.dependencies, hidden, start.setup, metadata, script
    )
    try:
        if run.machine != plan.run.machine:
            raise OSError("it was recorded before, with another machine")
        _write(bucket, values)
    except OSError as error:
        return [] if known(bucket, run) else [_not_kept(run, values, error)]
    return []


def confirm(bucket: str, run: Run, tpu: Tpu) -> None:
    """Keep that a run which was submitted elsewhere may be started again from here, as its record is now.

    Raises ConfigError where that cannot be written.
    """
    values = LaunchValues(run, tpu, run.arguments, run.dependencies, {}, run.setup, is_confirmed=True)
    try:
        _write(bucket, values)
    except OSError as error:
        raise ConfigError(
            f"{_path(bucket, run.run)} cannot be written: {error.strerror}.",
            hint=f"It says that run '{run.run}' may be started again from here. Another place: TPUCTL_STATE.",
        ) from error


def _write(bucket: str, values: LaunchValues) -> None:
    path = _path(bucket, values.record.run)
    make_private_folder(path.parent)
    atomic_files.replace_file(path, [msgspec.json.encode(values)], mode=atomic_files.PRIVATE)
    _forget_oldest(path.parent)


def _not_kept(run: Run, values: LaunchValues, error: OSError) -> str:
    """Say what a restart will miss, and the command that gives it."""
    parts = ("arguments", "dependencies", "setup")
    others = [part for part in parts if getattr(run, part) != getattr(values, part)]
    others += [f"--metadata {key}" for key in values.metadata]
    others += ["--startup-script"] if values.startup_script else []
    words = ["tpuctl watch", run.run, *(f"--secret {name}" for name in values.environment)]
    again = f"To start it again: {' '.join(words)}"
    missing = ", ".join(["the record", *values.environment, *others])
    return (
        f"Warning: {missing} of run '{run.run}' could not be kept here ({error.strerror or error})."
        f" {'A restart is refused without that.' if others else again}"
    )


def _hidden_settings(machine: Machine | None, node: Node) -> tuple[dict[str, str], str]:
    """Return the metadata and the startup script of a node that the record of its machine leaves out."""
    stored = machine.metadata if machine else {}
    metadata = {key: value for key, value in users_metadata(node).items() if stored.get(key) == NOT_STORED}
    has_script = machine is not None and machine.startup_script == NOT_STORED
    return metadata, users_script(node.spec.startup_script) if has_script else ""


def restored_machine(bucket: str, run: Run, machine: Machine) -> Machine:
    """Return the machine of a run with what its record leaves out.

    Raises UsageError that names what this machine does not know.
    """
    values = kept(bucket, run)
    hidden = [key for key, value in machine.metadata.items() if value == NOT_STORED]
    has_script = machine.startup_script == NOT_STORED
    missing = [f"'--metadata {key}'" for key in hidden if values is None or key not in values.metadata]
    missing += ["'--startup-script'"] if has_script and not (values and values.startup_script) else []
    if missing:
        raise UsageError(
            f"Run '{run.run}' cannot be started again from here: its TPU had {' and '.join(missing)}, which"
            " seemed to hold a secret and is not stored.",
            hint="Watch it on the machine that submitted it. Read secrets from Secret Manager on the hosts.",
        )
    if values is None or not (hidden or has_script):
        return machine
    return msgspec.structs.replace(
        machine,
        metadata={**machine.metadata, **{key: values.metadata[key] for key in hidden}},
        startup_script=values.startup_script if has_script else machine.startup_script,
    )


def forget(bucket: str, run: str) -> None:
    """Delete the values of a run that has ended."""
    try:
        _path(bucket, run).unlink(missing_ok=True)
    except OSError:
        pass


def restored(bucket: str, run: Run, given: Mapping[str, str], own: Mapping[str, str]) -> Launch:
    """Return what a run was started with: as its record says, `given` here, or kept on this machine.

    `own` are the variables that tpuctl sets. Raises UsageError that names what nobody knows.
    """
    values = kept(bucket, run)
    environment, missing = dict(own), []
    for name, value in run.environment.items():
        if value != NOT_STORED:
            environment[name] = value
        elif name in given:
            environment[name] = given[name]
        elif values and name in values.environment:
            environment[name] = values.environment[name]
        else:
            missing.append(name)
    if missing:
        raise _missing_variables(run, missing)
    if values:
        return Launch(values.arguments, values.dependencies, environment, values.setup)
    _require_whole(run)
    return Launch(run.arguments, run.dependencies, environment, run.setup)


def _require_whole(run: Run) -> None:
    parts = {"arguments": run.arguments, "dependencies": run.dependencies, "--setup": (run.setup,)}
    for part, texts in parts.items():
        if any(MASK in text for text in texts):
            raise UsageError(
                f"Run '{run.run}' cannot be started again from here: its {part} held a secret, which is not"
                " stored.",
                hint="Watch it on the machine that submitted it. Secrets in variables can be given again:"
                " --secret NAME.",
            )


def _missing_variables(run: Run, missing: list[str]) -> UsageError:
    options = " ".join(f"--secret {shlex.quote(name)}" for name in missing)
    return UsageError(
        f"Run '{run.run}' cannot be started again from here without the values of {', '.join(missing)}, which"
        " are neither in the bucket nor on this machine.",
        hint=f"Export them, then: tpuctl watch {run.run} {options}. Or watch where it was submitted.",
        missing=missing,
    )


def kept(bucket: str, run: Run) -> LaunchValues | None:
    """Return what the record of a run leaves out, as `known` does; None where it was submitted elsewhere."""
    values = known(bucket, run)
    return None if values is None or values.is_confirmed else values


def known(bucket: str, run: Run) -> LaunchValues | None:
    """Return what is kept here of a run; None for nothing, and for another run of its name.

    Raises ConfigError where its record is another one than was submitted: somebody has replaced it.
    """
    try:
        with _path(bucket, run.run).open("rb") as stream:
            values = bucket_objects.decode(stream.read(LARGEST), LaunchValues)
    except (OSError, bucket_objects.DecodeError):
        return None
    if values.record.token != run.token:
        return None
    changed = [name for name in Run.__struct_fields__ if getattr(run, name) != getattr(values.record, name)]
    if changed:
        raise ConfigError(
            f"Somebody has changed the record of run '{run.run}' since it was submitted here:"
            f" {', '.join(changed)}. It is not started again, and gets no value that is kept here.",
            hint=joined_hints(
                f"See who may write there: gcloud storage buckets get-iam-policy gs://{bucket}",
                f"End it: tpuctl cancel {run.run}",
            ),
            changed=changed,
        )
    return values


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[MOST_FILES:]:
        path.unlink(missing_ok=True)


def _path(bucket: str, run: str) -> Path:
    return state_folder() / "launches" / bucket / f"{run}.json"
