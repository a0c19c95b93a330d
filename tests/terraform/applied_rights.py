"""The part of `terraform show -json` that decides who may do what, for the records of applied examples.

python -m tests.terraform.applied_rights < STATE > tests/terraform/recorded/EXAMPLE-rights.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

KINDS = {
    "google_project_iam_custom_role": ("permissions", "project", "role_id"),
    "google_project_iam_member": ("condition", "member", "project", "role"),
    "google_service_account_iam_member": ("member", "role", "service_account_id"),
    "google_storage_bucket": (
        "location", "name", "project", "public_access_prevention", "soft_delete_policy",
        "uniform_bucket_level_access", "versioning",
    ),
    "google_storage_bucket_iam_member": ("bucket", "condition", "member", "role"),
}  # fmt: skip
"""Type of a resource -> its attributes that the simulator reads."""


def of_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the output of `terraform show -json` with these resources and attributes alone."""
    return {
        "format_version": state["format_version"],
        "values": {"root_module": _of_module(state["values"]["root_module"])},
    }


def _of_module(module: dict[str, Any]) -> dict[str, Any]:
    resources = [
        {
            **{name: resource[name] for name in ("address", "mode", "type")},
            "values": {name: resource["values"].get(name) for name in KINDS[resource["type"]]},
        }
        for resource in module.get("resources", ())
        if resource["type"] in KINDS
    ]
    children = [_of_module(child) for child in module.get("child_modules", ())]
    return {"resources": resources, "child_modules": children}


if __name__ == "__main__":
    json.dump(of_state(json.load(sys.stdin)), sys.stdout, indent=1)
    sys.stdout.write("\n")
