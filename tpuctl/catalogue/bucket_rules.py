"""Judges what a bucket does by itself: what breaks a run, deletes its records, or bills unseen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from tpuctl.durations import text
from tpuctl.errors import ConfigError

KEPT = {
    # folder of what tpuctl writes: how names of it end there, and what that is
    "runs/": ((".json", ".log"), "records, logs and checkpoints of runs"),
    "nodes/": ((".json",), "what ran on each TPU"),
    "bundles/": ((".tar.gz",), "the code, which a restart needs"),
}
RECORD = ".json"
LONG = 30
"""Days of an age rule from which it hardly meets a run before its end."""
SHORT = 1
"""Days up to which it meets most runs of a day or more."""
FORMER_VERSIONS = frozenset({"daysSinceNoncurrentTime", "noncurrentTimeBefore", "numNewerVersions"})
"""Conditions that only former versions of objects meet."""
CUSTOM_TIME = frozenset({"daysSinceCustomTime", "customTimeBefore"})
"""Conditions that only objects with a custom time meet, which tpuctl writes none of."""
UNTOLD = "a run overwrites its status, and could not even say how it ended"


@dataclass(frozen=True)
class Concern:
    """A rule that a run meets."""

    text: str
    fix: str
    is_fatal: bool = False
    """Whether no run can work with it."""
    is_at_start: bool = True
    """Whether it is said when a run starts; if not, only by `doctor`."""


@dataclass(frozen=True)
class BucketRules:
    """What a bucket does to objects by itself, and who pays for requests.

    Facts: https://cloud.google.com/storage/docs/lifecycle, .../bucket-lock, .../object-holds,
    .../requester-pays, .../soft-delete, .../object-versioning.
    """

    bucket: str
    storage_class: str = "STANDARD"
    """That of new objects."""
    has_versions: bool = False
    """Whether what is overwritten or deleted is kept until somebody deletes the version."""
    soft_delete_seconds: int = 0
    """For how long what is overwritten or deleted can be restored; 0 for not at all."""
    retention_seconds: int = 0
    """For how long an object may be neither overwritten nor deleted."""
    has_default_hold: bool = False
    """Whether each new object gets an event-based hold: it may be neither overwritten nor deleted."""
    is_requester_pays: bool = False
    lifecycle: Sequence[Mapping[str, Any]] = ()
    """The rules as the service lists them."""
    prevents_public_access: bool = False

    def concerns(self, today: date) -> list[Concern]:
        """Return what a run would meet, the worst first."""
        found = [*self._overwriting(), *self._deleting(today), *self._versions()]
        return sorted(found, key=lambda concern: not concern.is_fatal)

    def require_usable(self, today: date) -> list[Concern]:
        """Return what is to be said of it when a run starts; raises ConfigError where no run can work."""
        concerns = self.concerns(today)
        for concern in concerns:
            if concern.is_fatal:
                raise ConfigError(f"{concern.text}.", hint=concern.fix, bucket=self.bucket)
        return [concern for concern in concerns if concern.is_at_start]

    def facts(self) -> str:
        """Return what it keeps of what is deleted."""
        if not self.soft_delete_seconds:
            return "keeps nothing that is deleted"
        return f"keeps, and bills, for {text(self.soft_delete_seconds)} what is deleted or overwritten"

    def _overwriting(self) -> Iterator[Concern]:
        place = f"gs://{self.bucket}"
        update = f"gcloud storage buckets update {place}"
        if self.retention_seconds:
            yield Concern(
                f"{place} keeps each object for {text(self.retention_seconds)} (retention policy): {UNTOLD}",
                f"Use a bucket without one, or: {update} --clear-retention-period",
                is_fatal=True,
            )
        if self.has_default_hold:
            yield Concern(
                f"{place} puts a hold on each new object: {UNTOLD}",
                f"Use a bucket without it, or: {update} --no-default-event-based-hold",
                is_fatal=True,
            )
        if self.is_requester_pays:
            yield Concern(
                f"{place} bills those who use it (requester pays), for which neither tpuctl nor its hosts "
                "name a project",
                f"Use another bucket, or: {update} --no-requester-pays",
                is_fatal=True,
            )

    def _deleting(self, today: date) -> Iterator[Concern]:
        for rule in self.lifecycle:
            days = self._days(rule, today)
            lost = _lost(rule)
            if days is None or days >= LONG or not lost:
                continue
            when = f"{days} day{'s' * (days != 1)} after it was written" if days else "at once"
            yield Concern(
                f"A lifecycle rule of gs://{self.bucket} deletes {'; '.join(lost)}, {when}",
                "Use another bucket, or have the rule name other folders (matchesPrefix): "
                f"gcloud storage buckets update gs://{self.bucket} --lifecycle-file=FILE",
                is_fatal=days <= SHORT and any(lost.values()),
            )

    def _days(self, rule: Mapping[str, Any], today: date) -> int | None:
        """Return after how many days a rule deletes an object of ours; None for never."""
        condition = rule.get("condition", {})
        classes = condition.get("matchesStorageClass")
        if (
            not _deletes(rule)
            or _is_of_former_versions(rule)
            or CUSTOM_TIME & condition.keys()
            or (classes and self.storage_class not in classes)
            or ("createdBefore" in condition and date.fromisoformat(str(condition["createdBefore"])) <= today)
        ):
            return None
        return int(condition.get("age", 0))

    def _versions(self) -> Iterator[Concern]:
        drops = any(_deletes(rule) and _is_of_former_versions(rule) for rule in self.lifecycle)
        if self.has_versions and not drops:
            yield Concern(
                f"gs://{self.bucket} keeps every former version of each object, and bills it: a run "
                "overwrites the status of each host again and again",
                "Delete former versions by a lifecycle rule (numNewerVersions), or: gcloud storage buckets "
                f"update gs://{self.bucket} --no-versioning",
                is_at_start=False,
            )


def _deletes(rule: Mapping[str, Any]) -> bool:
    return bool(rule.get("action", {}).get("type") == "Delete")


def _is_of_former_versions(rule: Mapping[str, Any]) -> bool:
    condition = rule.get("condition", {})
    return condition.get("isLive") is False or bool(FORMER_VERSIONS & condition.keys())


def _lost(rule: Mapping[str, Any]) -> dict[str, bool]:
    """Return what a rule deletes of what tpuctl writes, each with whether it is the records of all runs."""
    condition = rule.get("condition", {})
    lost = dict[str, bool]()
    for folder, (endings, what) in KEPT.items():
        for prefix in condition.get("matchesPrefix") or [""]:
            for suffix in condition.get("matchesSuffix") or [""]:
                met = [ending for ending in endings if suffix.endswith(ending) or ending.endswith(suffix)]
                if met and folder.startswith(prefix):
                    lost[f"what ends with {suffix} in {folder}" if suffix else f"{folder} ({what})"] = (
                        RECORD in met
                    )
                elif met and prefix.startswith(folder):
                    lost[f"{prefix}*{suffix}"] = False
    return lost
