"""The laws over any plan of terraform/: no acceptance of a changed plan can switch them off.

terraform show -json PLAN | python -m tests.terraform.laws.book
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

from tests.terraform.laws.grants import nobody_rules, nothing_public, only_its_own_roles
from tests.terraform.laws.network import no_open_ingress, ssh_only_from_known_ranges
from tests.terraform.laws.planned import Planned
from tests.terraform.plans import plan
from tests.terraform.plans.stanzas import Stanzas

KINDS = {
    "data.google_project", "data.google_storage_project_service_account",
    "google_artifact_registry_repository", "google_artifact_registry_repository_iam_member",
    "google_billing_budget", "google_cloud_run_v2_job", "google_cloud_run_v2_job_iam_member",
    "google_cloud_scheduler_job", "google_compute_firewall", "google_compute_network",
    "google_compute_router",
    "google_compute_router_nat", "google_compute_subnetwork", "google_iap_tunnel_iam_member",
    "google_kms_crypto_key_iam_member", "google_project_iam_custom_role", "google_project_iam_member",
    "google_project_service", "google_service_account", "google_service_account_iam_member",
    "google_storage_bucket", "google_storage_bucket_iam_member", "google_tpu_v2_vm",
}  # fmt: skip
"""The types that the laws were written for. One that opens a way or grants a right needs a place there."""
PROVIDERS = {"google": "hashicorp/google", "google-beta": "hashicorp/google-beta"}


def closed_buckets(planned: Planned) -> Iterator[str]:
    """Every bucket has uniform access and public access prevention."""
    for bucket in planned.of("google_storage_bucket"):
        if bucket.values.get("uniform_bucket_level_access") is not True:
            yield f"{bucket.address} has access lists: uniform_bucket_level_access must be true"
        if bucket.values.get("public_access_prevention") != "enforced":
            yield f'{bucket.address} can become public: public_access_prevention must be "enforced"'


def known_kinds(planned: Planned) -> Iterator[str]:
    """Every resource is of a type that the laws know."""
    for resource in planned.resources:
        if resource.kind not in KINDS:
            yield f"{resource.address}: no law knows {resource.kind}: write what it may not do"


def no_public_address(planned: Planned) -> Iterator[str]:
    """No TPU VM has an external address."""
    for vm in planned.of("google_tpu_v2_vm"):
        interfaces = [*vm.values.get("network_config", ()), *vm.values.get("network_configs", ())]
        if not interfaces or any(
            interface.get("enable_external_ips") is not False for interface in interfaces
        ):
            yield f"{vm.address} may have an external address: enable_external_ips must be false"


def own_programs_only(blocks: Stanzas) -> Iterator[str]:
    """Files run no programs, and take providers and modules from nowhere else."""
    for name, lines in blocks.items():
        kind = name.split()[0]
        if "provisioner" in lines or "connection" in lines:
            yield f"{name} runs a program where terraform runs"
        if kind == "file":
            yield f"{name} is not read by these checks: write it as .tf"
        if kind == "module" and not str(lines.get("source")).startswith(("./", "../")):
            yield f"{name} comes from {lines.get('source')!r}, which nobody reviews here"
        if kind == "provider" and name.split()[1].split(".")[0] not in PROVIDERS:
            yield f"{name} is not Google's"
        for provider, required in (
            (lines.get("required_providers") or {}).items() if kind == "terraform" else ()
        ):
            if PROVIDERS.get(provider) != required.get("source"):
                yield f"the provider {provider} comes from {required.get('source')!r}"


LAWS: dict[str, Callable[[Planned], Iterator[str]]] = {
    "no open ingress": no_open_ingress,
    "SSH only from known ranges": ssh_only_from_known_ranges,
    "nothing is public": nothing_public,
    "TPU VMs have their own roles only": only_its_own_roles,
    "nobody rules the project": nobody_rules,
    "buckets are closed": closed_buckets,
    "no TPU has a public address": no_public_address,
    "the laws know every type": known_kinds,
}
OF_BLOCKS = "no foreign programs"


def broken(stanzas: Stanzas, ssh_ranges: tuple[str, ...] = ()) -> list[str]:
    """Return a sentence for each place where a plan breaks a law, with the law's name."""
    planned = Planned(stanzas, ssh_ranges)
    return [f"{name}: {sentence}" for name, law in LAWS.items() for sentence in law(planned)]


def broken_by_blocks(blocks: Stanzas) -> list[str]:
    """Return a sentence for each place where the files of a module break a law."""
    return [f"{OF_BLOCKS}: {sentence}" for sentence in own_programs_only(blocks)]


if __name__ == "__main__":
    sentences = broken(plan.stanzas(json.load(sys.stdin)), tuple(sys.argv[1:]))
    sys.stdout.write("".join(f"{sentence}\n" for sentence in sentences))
    sys.exit(1 if sentences else 0)
