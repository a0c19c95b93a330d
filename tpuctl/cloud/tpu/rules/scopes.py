"""The OAuth scopes of a service account: full URLs, or the aliases of gcloud."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpuctl.errors import UsageError, nearest

AUTH = "https://www.googleapis.com/auth/"
SCOPE_URL = re.compile(r"https://(www\.googleapis\.com/auth/[\w./-]+|mail\.google\.com/)", re.ASCII)
CLOUD_PLATFORM = f"{AUTH}cloud-platform"
"""All that the roles of the account allow."""
ALIASES = {
    # gcloud's names (googlecloudsdk/api_lib/compute/constants.py): the ends of their URLs
    "bigquery": ("bigquery",),
    "cloud-platform": ("cloud-platform",),
    "cloud-source-repos": ("source.full_control",),
    "cloud-source-repos-ro": ("source.read_only",),
    "compute-ro": ("compute.readonly",),
    "compute-rw": ("compute",),
    "datastore": ("datastore",),
    "default": (
        "devstorage.read_only", "logging.write", "monitoring.write", "pubsub",
        "service.management.readonly", "servicecontrol", "trace.append",
    ),
    "gke-default": (
        "devstorage.read_only", "logging.write", "monitoring", "service.management.readonly",
        "servicecontrol", "trace.append",
    ),
    "logging-write": ("logging.write",),
    "monitoring": ("monitoring",),
    "monitoring-read": ("monitoring.read",),
    "monitoring-write": ("monitoring.write",),
    "pubsub": ("pubsub",),
    "service-control": ("servicecontrol",),
    "service-management": ("service.management.readonly",),
    "sql": ("sqlservice",),
    "sql-admin": ("sqlservice.admin",),
    "storage-full": ("devstorage.full_control",),
    "storage-ro": ("devstorage.read_only",),
    "storage-rw": ("devstorage.read_write",),
    "taskqueue": ("taskqueue",),
    "trace": ("trace.append",),
    "userinfo-email": ("userinfo.email",),
}  # fmt: skip


def scope_urls(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of scopes, each once; raises UsageError for what is neither URL nor alias."""
    urls: dict[str, None] = {}
    for scope in scopes:
        if SCOPE_URL.fullmatch(scope):
            urls[scope] = None
        elif scope in ALIASES:
            urls |= dict.fromkeys(AUTH + end for end in ALIASES[scope])
        else:
            close = nearest(scope, sorted(ALIASES))
            hint = (
                f"Did you mean {close[0]}?" if close else f"Give {AUTH}NAME or {', '.join(sorted(ALIASES))}."
            )
            raise UsageError(f"'{scope}' is no OAuth scope.", hint=hint, scope=scope)
    return tuple(urls)
