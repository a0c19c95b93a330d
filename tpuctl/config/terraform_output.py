"""Reads settings from `terraform output -json` of terraform/."""

from __future__ import annotations

import msgspec

from tpuctl.config.formats import normalize
from tpuctl.errors import ConfigError, TpuctlError

OUTPUT = "tpuctl"
"""The output of terraform/outputs.tf; a root module that uses terraform/ as a module passes it on."""
SCHEMA = 1


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
        return {name: normalize(name, value) for name, value in _values(base).items()}
    except (msgspec.ValidationError, TpuctlError) as error:
        raise ConfigError(
            f"The output '{OUTPUT}' of {source} is not as terraform/outputs.tf defines it: {error}",
            hint="Pass the module's output on unchanged: value = module.NAME.tpuctl",
        ) from error


def _decoded(data: bytes, source: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
        hint="Run 'terraform apply' there first. A module of your own that uses terraform/ needs: "
        f'output "{OUTPUT}" {{ value = module.NAME.tpuctl }}',
    )


def _values(base: Base) -> dict[str, str]:
    through_iap = {} if base.external_ips else {"iap": "yes"}
    return {
        "project": base.project,
        "zone": base.zone,
        "bucket": base.buckets.runs,
        "data_bucket": base.buckets.data,
        "network": base.network,
        "subnetwork": base.subnetwork,
        "service_account": base.service_account,
        "external_ips": "yes" if base.external_ips else "no",
        **through_iap,
    }
