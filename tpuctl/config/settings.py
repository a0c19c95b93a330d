"""Lists the settings that can be configured, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass

TARGETS = ("gcp", "sim")


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    help: str
    gcp_default: str | None = None
    sim_default: str | None = None
    real_only: bool = False
    """It names a resource of a real project: the simulator does not use values of gcloud and of files, except
    of a file that sets `target = "sim"`."""

    @property
    def flag(self) -> str:
        """The option of a command that sets it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"TPUCTL_{self.name.upper()}"


@dataclass(frozen=True)
class Value:
    """A setting's value, None when nothing sets it, and where it came from."""

    value: str | None
    origin: str
    line: int = 0
    """The line of the file that is its origin, counted from 1; 0 for other origins."""

    @property
    def place(self) -> str:
        """The origin as messages name it: of a file, with the line."""
        return f"{self.origin}, line {self.line}" if self.line else self.origin


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("target", "gcp or sim"),
        Setting("project", "Google Cloud project id", sim_default="sim-project", real_only=True),
        Setting("zone", "zone of the TPUs", sim_default="europe-west4-a"),
        Setting(
            "bucket",
            "Cloud Storage bucket of datasets and runs",
            sim_default="sim-project-tpuctl",
            real_only=True,
        ),
        Setting(
            "cross_region",
            "whether a TPU may read a bucket in another region, which is billed as traffic (yes or no)",
            "no",
            "no",
        ),
        Setting("accelerator", "TPU type that 'tpuctl up' creates"),
        Setting("framework", "framework that 'tpuctl up' chooses the image for (jax, pytorch or tensorflow)"),
        Setting("data_bucket", "Cloud Storage bucket of datasets, when it is another one", real_only=True),
        Setting("network", "VPC network of the TPU VMs", "default", "default"),
        Setting("subnetwork", "subnetwork of the TPU VMs", real_only=True),
        Setting(
            "subnetworks",
            "subnetwork of the TPU VMs in each region: zones of other regions are not used (REGION=NAME,...)",
            real_only=True,
        ),
        Setting(
            "external_ips",
            "whether TPU VMs have external addresses (yes or no)",
            "yes",
            "yes",
            real_only=True,
        ),
        Setting(
            "iap",
            "whether SSH goes through Identity-Aware Proxy (yes or no)",
            real_only=True,
        ),
        Setting(
            "host_keys",
            "which keys of hosts are trusted: those that they published, or those of the first contact "
            "(published or first-contact)",
            "published",
            "published",
            real_only=True,
        ),
        Setting("service_account", "service account of the TPU VMs (email)", real_only=True),
        Setting(
            "terraform",
            "folder or file that 'tpuctl init --from-terraform' read, to compare with",
            real_only=True,
        ),
        Setting(
            "watch_types",
            "TPU types that 'tpuctl watch' may make for runs submitted elsewhere (TYPE,...)",
            real_only=True,
        ),
        Setting(
            "watch_zones", "zones in which it may make them (ZONE,...); default: the zone", real_only=True
        ),
        Setting("watch_max_price", "most that they may cost per hour together", real_only=True),
        Setting("restarts", "how often a run is started again after a preemption (a number, or unlimited)"),
        Setting("restarts_on_failure", "how often a run is started again after a failure of its own"),
        Setting(
            "python_archives",
            "Pythons of the bucket that hosts may use, as 'tpuctl python' names them (VERSION=SHA256,...)",
            real_only=True,
        ),
        Setting("owner", "account whose TPUs and runs are one's own", real_only=True),
        Setting("ssh_user", "user on the TPU VMs"),
        Setting("ssh_key", "private key for SSH"),
    )
}
