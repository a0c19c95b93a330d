"""What `terraform output -json` says of the base that terraform/ makes, as settings."""

from __future__ import annotations

import msgspec

from tpuctl.config.resource_names import checked
from tpuctl.errors import ConfigError, TpuctlError

OUTPUT = "tpuctl"
"""The output of terraform/outputs.tf; a root module that uses terraform/ as a module hands it on."""
SCHEMA = 1


class Buckets(msgspec.Struct, frozen=True):
    """Where datasets and runs go, as gs:// URIs."""

    data: str
    runs: str


class Base(msgspec.Struct, frozen=True):
    """The output, as far as tpuctl has to know it; fields that are added later are none of its business."""

    project: str
    zone: str
    buckets: Buckets
    network: str
    subnetwork: str
    service_account: str
    external_ips: bool


def settings(data: bytes, where: str) -> dict[str, str]:
    """Return the settings in either form of `terraform output -json`: all outputs, or the bare object.

    Raises ConfigError naming `where` for what is no such output, or is one of another schema.
    """
    found = _bare(_decoded(data, where), where)
    if found.get("schema") != SCHEMA:
        raise ConfigError(
            f"The output '{OUTPUT}' of {where} has schema {found.get('schema')}; this tpuctl reads {SCHEMA}.",
            hint="Use tpuctl and its terraform/ folder in the same version.",
        )
    try:
        base = msgspec.convert(found, Base)
        return {name: checked(name, value) for name, value in _values(base).items()}
    except (msgspec.ValidationError, TpuctlError) as error:
        raise ConfigError(
            f"The output '{OUTPUT}' of {where} is not as terraform/outputs.tf makes it: {error}",
            hint="Hand on the module's output whole: value = module.NAME.tpuctl",
        ) from error


def _decoded(data: bytes, where: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{where} is not what 'terraform output -json' prints: {error}.",
            hint="Run 'terraform output -json > FILE' where you ran 'terraform apply', and pass that FILE.",
        ) from error


def _bare(found: dict[str, object], where: str) -> dict[str, object]:
    """The object itself, out of the wrapping with type and sensitivity if it has one."""
    wrapped = found.get(OUTPUT)
    if isinstance(wrapped, dict) and isinstance(wrapped.get("value"), dict):
        return dict(wrapped["value"])
    if "schema" in found:
        return found
    raise ConfigError(
        f"{where} has no output '{OUTPUT}'.",
        hint="Run 'terraform apply' there first. A module of your own that uses terraform/ needs: "
        f'output "{OUTPUT}" {{ value = module.NAME.tpuctl }}',
    )


def _values(base: Base) -> dict[str, str]:
    return {
        "project": base.project,
        "zone": base.zone,
        "bucket": base.buckets.runs,
        "data_bucket": base.buckets.data,
        "network": base.network,
        "subnetwork": base.subnetwork,
        "service_account": base.service_account,
        "external_ips": "yes" if base.external_ips else "no",
    }
