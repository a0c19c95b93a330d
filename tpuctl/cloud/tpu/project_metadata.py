"""Reads the metadata that all hosts of a project share, from the Compute Engine API."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tpuctl.cloud.error_table import Service
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
    next_page_token: str = ""


def read_project_metadata(api: RestApi, project: str) -> Mapping[str, str]:
    """Return the common instance metadata of a project; raises tpuctl's errors."""
    path, subject = f"/compute/v1/projects/{project}", f"The metadata of project {project}"
    return {
        item.key: item.value
        for page in api.pages(path, _Project, subject)
        for item in page.common_instance_metadata.items
    }


def uses_os_login(node: Mapping[str, str], project: Mapping[str, str]) -> bool:
    """Whether OS Login is on: a node's own metadata counts before its project's."""
    return node.get(OS_LOGIN, project.get(OS_LOGIN, "")).strip().lower() in TRUE
