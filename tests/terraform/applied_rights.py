"""The part of `terraform show -json` that decides who may do what, for the records of applied examples.

Applies the examples on the stand-in and writes their records anew, to be looked at with `git diff`:

    python -m tests.terraform.applied_rights
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.terraform import stand_in
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.workbench import Workbench

RECORDED = Path(__file__).parent / "recorded"
EXAMPLES = ("minimal", "complete", "teams")

KINDS = {
    "google_compute_firewall": (
        "allow", "direction", "disabled", "name", "network", "project", "source_ranges",
    ),
    "google_iap_tunnel_iam_member": ("condition", "member", "project", "role"),
    "google_project_iam_custom_role": ("permissions", "project", "role_id"),
    "google_project_iam_member": ("condition", "member", "project", "role"),
    "google_service_account_iam_member": ("member", "role", "service_account_id"),
    "google_storage_bucket": (
        "lifecycle_rule", "location", "name", "project", "public_access_prevention", "soft_delete_policy",
        "uniform_bucket_level_access", "versioning",
    ),
    "google_storage_bucket_iam_member": ("bucket", "condition", "member", "role"),
    "google_tpu_v2_vm": ("accelerator_type", "labels", "name", "project", "runtime_version", "zone"),
}  # fmt: skip
"""Type of a resource -> its attributes that the simulator and the tests read."""


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


def applied(bench: Workbench, example: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Apply an example and destroy it; return its rights and its outputs."""
    folder = f"examples/{example}"
    result = bench.run(folder, "apply", "-auto-approve", "-no-color")
    assert result.code == 0, result.text
    assert "Warning: Check block assertion" not in result.out
    state = json.loads(bench.run(folder, "show", "-json").out)
    outputs = json.loads(bench.run(folder, "output", "-json").out)
    bench.run(folder, "destroy", "-auto-approve", "-no-color")
    return of_state(state), outputs


def write() -> None:
    """Write the records of all examples."""
    with stand_in.running(VERSIONS[-1]) as environment, tempfile.TemporaryDirectory() as folder:
        bench = Workbench(Path(folder), environment)
        bench.install()
        for example in EXAMPLES:
            rights, outputs = applied(bench, example)
            (RECORDED / f"{example}-rights.json").write_text(json.dumps(rights, indent=1) + "\n")
            (RECORDED / f"{example}.json").write_text(json.dumps(outputs, indent=2) + "\n")


if __name__ == "__main__":
    write()
