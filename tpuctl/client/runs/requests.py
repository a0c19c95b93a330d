"""Turns what a caller asks of a submission into the flow's request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.context import Context, length, seconds
from tpuctl.client.runs.busy import Policy
from tpuctl.config import subnetworks
from tpuctl.config.settings import normalize
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.placement.rounds import is_zone
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.submission.plan import SubmitRequest
from tpuctl.flows.runs.submission.restart_policy import RestartRequest
from tpuctl.host.worker.records import COMMAND, MODULE, SETUP_TIMEOUT

if TYPE_CHECKING:
    from tpuctl.client.runs.client import SubmitOptions

AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def submit_request(
    context: Context, script: str | Path, arguments: tuple[str, ...], options: SubmitOptions
) -> tuple[SubmitRequest, Policy]:
    """Return the request, and what to do about a TPU that is busy."""
    wheelhouse, root = options.get("wheelhouse"), options.get("root")
    secrets = dict(options.get("secrets", {}))
    environment = {**options.get("environment", {}), **secrets}
    restarts, failures = options.get("restarts"), options.get("restarts_on_failure")
    request = SubmitRequest(
        script=script,
        kind=options.get("kind", ""),
        root=None if root is None else Path(root),
        framework=options.get("framework"),
        defaults=context.config.run,
        arguments=arguments,
        include=tuple(Path(path) for path in options.get("include", ())),
        name=options.get("name"),
        tpu=options.get("node"),
        accelerator=options.get("accelerator"),
        dataset=options.get("dataset"),
        environment=environment,
        stored=tuple(options.get("store_environment", ())),
        setup=options.get("setup"),
        setup_timeout=seconds(options.get("setup_timeout", SETUP_TIMEOUT)),
        extras=tuple(options.get("extras", ())),
        groups=tuple(options.get("groups", ())),
        indexes=tuple(options.get("indexes", ())),
        python=options.get("python", ""),
        python_archives=python_archives(context),
        wheelhouse=None if wheelhouse is None else Path(wheelhouse),
        code_limit=options.get("code_limit", bundles.LIMIT),
        secrets=tuple(secrets),
        restarts=restart_request(
            context,
            None if restarts is None else str(restarts),
            None if failures is None else str(failures),
            options.get("restart_zones", ()),
            options.get("max_price"),
        ),
    )
    name = options.get("busy", "refuse")
    policy = Policy(None if name == "refuse" else name, round(length(options.get("queue_timeout", 0))))
    return request, policy


def python_archives(context: Context) -> dict[str, str]:
    """Return the interpreters of the bucket that the configuration trusts: version -> SHA-256."""
    return subnetworks.parted(context.config.get("python_archives") or "")


def program(
    script: Path | None, module: str | None, arguments: tuple[str, ...]
) -> tuple[str | Path, str, tuple[str, ...]]:
    """Return what a command line asks to run, its kind, and its arguments; raises UsageError for nothing."""
    if module:
        return module, MODULE, arguments if script is None else (str(script), *arguments)
    if script is not None:
        return script, "", arguments
    if not arguments:
        raise UsageError(
            "There is nothing to run.",
            hint="Give a script (train.py), a module (-m package.train) or a command (-- COMMAND).",
        )
    return arguments[0], COMMAND, arguments[1:]


def restart_request(
    context: Context,
    restarts: str | None,
    restarts_on_failure: str | None,
    zones: Sequence[str],
    max_price: str | None,
) -> RestartRequest:
    """Return the options together with the configuration; raises UsageError or ConfigError."""
    config, is_typed = context.config, restarts is not None or restarts_on_failure is not None
    if max_price is not None and not AMOUNT.fullmatch(max_price):
        raise UsageError(f"--max-price {max_price} is no amount.", hint="For instance --max-price 12.50.")
    return RestartRequest(
        after_loss=(restarts if is_typed else config.get("restarts")) or "",
        after_failure=(restarts_on_failure if is_typed else config.get("restarts_on_failure")) or "",
        is_configured=not is_typed,
        zones=tuple(normalize("zone", zone, "--restart-zone") if is_zone(zone) else zone for zone in zones),
        max_price=max_price or "",
        subnetworks=subnetworks.of_config(config),
    )
