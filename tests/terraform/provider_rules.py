"""The rules of the real provider beyond its schema, for the resources that the module uses.

From the public documentation of each resource. Names of nested blocks are joined by dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.terraform.provider_schema import Block, Path, ProviderSchema, dotted, is_unknown, set_attributes

NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
PRINCIPAL = r"(allUsers|allAuthenticatedUsers|[a-zA-Z]+:.+|principal(Set)?://.+)"
ROLE = r"(roles/[a-zA-Z0-9._]+|(projects|organizations)/.+/roles/.+)"

PATTERNS = {
    "google_artifact_registry_repository_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_billing_budget": {"budget_filter.projects": r"projects/[0-9]+"},
    "google_cloud_run_v2_job": {"name": r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"},
    "google_cloud_run_v2_job_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_cloud_scheduler_job": {"name": r"[a-zA-Z0-9_-]{1,500}", "attempt_deadline": r"[0-9.]+s"},
    "google_compute_firewall": {"name": NAME, "allow.ports": r"[0-9]+(-[0-9]+)?"},
    "google_compute_network": {"name": NAME},
    "google_compute_router": {"name": NAME},
    "google_compute_router_nat": {"name": NAME},
    "google_compute_subnetwork": {"name": NAME},
    "google_iap_tunnel_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_kms_crypto_key_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_project_iam_custom_role": {
        "role_id": r"[a-zA-Z0-9_.]{3,64}",
        "permissions": r"[a-zA-Z]+(\.[a-zA-Z]+){2}",
    },
    "google_project_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_project_service": {"service": r"[a-z0-9-]+(\.[a-z0-9-]+)*\.googleapis\.com"},
    "google_service_account": {"account_id": r"[a-z]([-a-z0-9]{4,28}[a-z0-9])"},
    "google_service_account_iam_member": {
        "member": PRINCIPAL,
        "role": ROLE,
        "service_account_id": r"projects/[^/]+/serviceAccounts/[^/]+@[^/]+",
    },
    "google_storage_bucket": {"name": r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]"},
    "google_storage_bucket_iam_member": {"member": PRINCIPAL, "role": ROLE},
    "google_tpu_v2_vm": {"name": NAME},
}
ALLOWED = {
    "google_compute_router_nat": {
        "nat_ip_allocate_option": ("AUTO_ONLY", "MANUAL_ONLY"),
        "source_subnetwork_ip_ranges_to_nat": (
            "ALL_SUBNETWORKS_ALL_IP_RANGES",
            "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES",
            "LIST_OF_SUBNETWORKS",
        ),
        "log_config.filter": ("ERRORS_ONLY", "TRANSLATIONS_ONLY", "ALL"),
    },
    "google_storage_bucket": {
        "lifecycle_rule.action.type": ("Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"),
        # The provider accepts any value; the API does not.
        "public_access_prevention": ("enforced", "inherited"),
        "storage_class": ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"),
    },
}
RANGES = {
    "google_compute_network": {"mtu": (1300, 8896)},
    "google_billing_budget": {"threshold_rules.threshold_percent": (0, 1000)},
}
EXACTLY_ONE = {
    "google_compute_firewall": [("allow", "deny")],
    "google_billing_budget": [("amount.specified_amount", "amount.last_period_amount")],
}
AT_MOST_ONE = {
    "google_compute_firewall": [
        ("source_tags", "source_service_accounts"),
        ("source_tags", "target_service_accounts"),
        ("target_tags", "target_service_accounts"),
        ("target_tags", "source_service_accounts"),
        ("destination_ranges", "source_ranges"),
    ],
    "google_tpu_v2_vm": [("accelerator_type", "accelerator_config"), ("network_config", "network_configs")],
}


def problems(schema: ProviderSchema, kind: str, name: str, value: Any) -> Iterator[tuple[str, Path]]:
    """Yield each problem in the configuration of a resource or data source, and its path."""
    block = (schema.resources if kind == "resource" else schema.data_sources)[name]
    rules = name if kind == "resource" else ""
    for path, attribute, setting in set_attributes(block, value):
        for text in _of_attribute(schema, f"{kind}.{name}", rules, dotted(path), attribute, setting):
            yield text, path
    for group in EXACTLY_ONE.get(rules, ()):
        if sum(_is_set(value, path) for path in group) != 1:
            yield f"exactly one of {' and '.join(group)} must be set", ()
    for group in AT_MOST_ONE.get(rules, ()):
        if sum(_is_set(value, path) for path in group) > 1:
            yield f"{' and '.join(group)} exclude each other", (group[-1],)


def _of_attribute(
    schema: ProviderSchema, key: str, rules: str, path: str, attribute: Block, value: Any
) -> Iterator[str]:
    if attribute.get("computed") and not attribute.get("optional"):
        yield f"{path} is computed by the provider and cannot be set"
    allowed = schema.allowed.get(key, {}).get(path) or ALLOWED.get(rules, {}).get(path)
    pattern = PATTERNS.get(rules, {}).get(path)
    low, high = RANGES.get(rules, {}).get(path, (None, None))
    for element in value if isinstance(value, list) else [value]:
        if is_unknown(element):
            continue
        if allowed and element not in allowed:
            yield f'{path} must be one of {", ".join(allowed)}, not "{element}"'
        if pattern and not re.fullmatch(pattern, element):
            yield f'{path} "{element}" does not match {pattern}'
        if low is not None and not low <= float(element) <= high:  # a fraction may come as text
            yield f"{path} must be {low} to {high}, not {element}"


def _is_set(value: Any, path: str) -> bool:
    """Return whether a dotted path is set, in the first of several nested blocks."""
    for name in path.split("."):
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, dict):
            return False
        value = value.get(name)
        if value is None or (not is_unknown(value) and value in ([], {})):
            return False
    return True
