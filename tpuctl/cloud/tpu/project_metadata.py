"""Reads what a project has in Compute Engine: the metadata that all its hosts share, disks and addresses."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tpuctl.catalogue.quotas import Address, Disk
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.rest import RestApi

SERVICE = Service("compute.googleapis.com", "roles/compute.viewer")
URL = "https://compute.googleapis.com"
OS_LOGIN = "enable-oslogin"
"""Where it is true, hosts ignore `ssh-keys`: https://cloud.google.com/compute/docs/oslogin/set-up-oslogin"""
TRUE = ("1", "t", "true")
"""What Google's guest agent takes for true: Go's ParseBool, in any case."""


class _Item(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] = ()


class _Project(msgspec.Struct, frozen=True, rename="camel"):
    """https://cloud.google.com/compute/docs/reference/rest/v1/projects/get: other fields are skipped."""

    common_instance_metadata: _Metadata = _Metadata()
    default_service_account: str = ""
    next_page_token: str = ""


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    """A disk or an address; other fields are skipped."""

    name: str = ""
    size_gb: str = ""
    type: str = ""
    users: tuple[str, ...] = ()
    address: str = ""
    address_type: str = ""
    status: str = ""


class _Scope(msgspec.Struct, frozen=True):
    """What is in one zone or region, or in none (`global`)."""

    disks: tuple[_Resource, ...] = ()
    addresses: tuple[_Resource, ...] = ()


class _Scopes(msgspec.Struct, frozen=True, rename="camel"):
    """https://cloud.google.com/compute/docs/reference/rest/v1/disks/aggregatedList, and of addresses."""

    items: Mapping[str, _Scope] = {}
    unreachables: tuple[str, ...] = ()
    next_page_token: str = ""


def read_disks(api: RestApi, project: str) -> tuple[list[Disk], list[str]]:
    """Return the persistent disks of a project, and places that did not answer; raises tpuctl's errors."""
    scopes = _scopes(api, project, "disks")
    disks = [
        Disk(each.name, _last(place), each.size_gb, _last(each.type), tuple(map(_last, each.users)))
        for page in scopes
        for place, scope in page.items.items()
        for each in scope.disks
    ]
    return disks, _silent(scopes)


def read_addresses(api: RestApi, project: str) -> tuple[list[Address], list[str]]:
    """Return the static external addresses of a project, and places that did not answer."""
    scopes = _scopes(api, project, "addresses")
    addresses = [
        Address(each.name, _last(place), each.address, each.status)
        for page in scopes
        for place, scope in page.items.items()
        for each in scope.addresses
        if each.address_type != "INTERNAL"
    ]
    return addresses, _silent(scopes)


def _scopes(api: RestApi, project: str, collection: str) -> list[_Scopes]:
    path = f"/compute/v1/projects/{project}/aggregated/{collection}"
    return list(api.pages(path, _Scopes, f"The {collection} of {project}", returnPartialSuccess="true"))


def _silent(scopes: list[_Scopes]) -> list[str]:
    return [_last(place) for page in scopes for place in page.unreachables]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def read_project_metadata(api: RestApi, project: str) -> Mapping[str, str]:
    """Return the common instance metadata of a project; raises tpuctl's errors."""
    path, subject = f"/compute/v1/projects/{project}", f"The metadata of project {project}"
    return {
        item.key: item.value
        for page in api.pages(path, _Project, subject)
        for item in page.common_instance_metadata.items
    }


def read_default_account(api: RestApi, project: str) -> str:
    """Return the default service account of Compute Engine in a project; raises tpuctl's errors."""
    path, subject = f"/compute/v1/projects/{project}", f"The default service account of project {project}"
    return next((page.default_service_account for page in api.pages(path, _Project, subject)), "")


def uses_os_login(node: Mapping[str, str], project: Mapping[str, str]) -> bool:
    """Whether OS Login is on: a node's own metadata counts before its project's."""
    return node.get(OS_LOGIN, project.get(OS_LOGIN, "")).strip().lower() in TRUE
