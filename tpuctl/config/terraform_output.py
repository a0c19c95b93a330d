"""Reads settings from `terraform output -json` of terraform/."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tpuctl import accelerators
from tpuctl.config.files import text_of
from tpuctl.config.settings import normalize
from tpuctl.config.subnetworks import SUBNETWORKS, joined, parted
from tpuctl.errors import ConfigError, TpuctlError

OUTPUT = "tpuctl"
"""The output of terraform/outputs.tf; a root module that uses terraform/ as a module passes it on."""
SCHEMA = 1
APPLY_FIRST = (
    "Run 'terraform apply' there first. A module of your own that uses terraform/ needs: "
    f'output "{OUTPUT}" {{ value = module.NAME.tpuctl }}'
)
"""What to do where the output is missing."""


class Buckets(msgspec.Struct, frozen=True):
    """The buckets of datasets and of runs, as gs:// URIs."""

    data: str
    runs: str


class Base(msgspec.Struct, frozen=True):
    """The fields of the output that tpuctl uses; it ignores others, such as those of later versions."""

    project: str
    zone: str
    buckets: Buckets
    network: str
    subnetwork: str
    service_account: str
    external_ips: bool
    region: str = ""
    subnetworks: dict[str, str] = {}
    """Region -> subnetwork; outputs of earlier versions have one region."""


def settings(data: bytes, source: str) -> dict[str, str]:
    """Return the settings in either form of `terraform output -json`: all outputs, or the bare object.

    Raises ConfigError naming the `source` if the output is missing, malformed, or of another schema.
    """
    output = _unwrapped(_decoded(data, source), source)
    if output.get("schema") != SCHEMA:
        schema = output.get("schema")
        raise ConfigError(
            f"The output '{OUTPUT}' of {source} has schema {schema}; this tpuctl reads {SCHEMA}.",
            hint="Use tpuctl and its terraform/ folder in the same version.",
        )
    try:
        base = msgspec.convert(output, Base)
        values = {name: normalize(name, value) for name, value in _values(base).items()}
    except (msgspec.ValidationError, TpuctlError) as error:
        raise ConfigError(
            f"The output '{OUTPUT}' of {source} is not as terraform/outputs.tf defines it: {error}",
            hint="Pass the module's output on unchanged: value = module.NAME.tpuctl",
        ) from error
    _check(values, base.region, source)
    return values


def is_applied(data: bytes) -> bool:
    """Whether `terraform output -json` printed any output: without a state it has none."""
    return data.strip() not in (b"", b"{}")


def _check(values: Mapping[str, str], region: str, source: str) -> None:
    """Raise ConfigError for settings that contradict each other."""
    zone, subnetworks = values["zone"], parted(values.get(SUBNETWORKS, ""))
    of_zone = accelerators.region(zone)
    problem = ""
    if region and region != of_zone:
        problem = f"zone {zone} is not in region {region}"
    elif values["bucket"] == values["data_bucket"]:
        problem = (
            f"gs://{values['bucket']} is the bucket of datasets and of runs: hosts may write to one alone"
        )
    elif subnetworks and subnetworks.get(of_zone) != values["subnetwork"]:
        problem = f"subnetwork {values['subnetwork']} is not in {of_zone}, the region of {zone}"
    if problem:
        raise ConfigError(
            f"The output '{OUTPUT}' of {source} contradicts itself: {problem}.",
            hint="Correct the variables of terraform/, and run 'terraform apply'.",
        )


def _decoded(data: bytes, source: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text_of(data, source), type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{source} is not what 'terraform output -json' prints: {error}.",
            hint="Run 'terraform output -json > FILE' where you ran 'terraform apply', and pass that FILE.",
        ) from error


def _unwrapped(outputs: dict[str, object], source: str) -> dict[str, object]:
    """The object itself, without the wrapper of type and sensitivity that all outputs have."""
    wrapped = outputs.get(OUTPUT)
    if isinstance(wrapped, dict) and isinstance(wrapped.get("value"), dict):
        return dict(wrapped["value"])
    if "schema" in outputs:
        return outputs
    raise ConfigError(
        f"{source} has no output '{OUTPUT}'.",
        hint=APPLY_FIRST,
    )


def _values(base: Base) -> dict[str, str]:
    subnetworks = base.subnetworks or ({base.region: base.subnetwork} if base.region else {})
    through_iap = {} if base.external_ips else {"iap": "yes"}
    return {
        "project": base.project,
        "zone": base.zone,
        "bucket": base.buckets.runs,
        "data_bucket": base.buckets.data,
        "network": base.network,
        "subnetwork": base.subnetwork,
        **({SUBNETWORKS: joined(subnetworks)} if subnetworks else {}),
        "service_account": base.service_account,
        "external_ips": "yes" if base.external_ips else "no",
        **through_iap,
    }
