"""Defines the reference of a dataset, NAME/VERSION, and its folder in the bucket."""

from __future__ import annotations

import re

import msgspec

from tpuctl.bucket_layout import DATASETS, gs
from tpuctl.bucket_objects import Sha256
from tpuctl.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


class DatasetRef(msgspec.Struct, frozen=True):
    """One version of a dataset, or with an empty version the dataset in any."""

    name: str
    version: str

    @classmethod
    def parse(cls, text: str) -> DatasetRef:
        """Return the reference in `NAME/VERSION` or `NAME`; what is in it is not checked."""
        name, _, version = text.partition("/")
        return cls(name, version)

    def __str__(self) -> str:
        return f"{self.name}/{self.version}" if self.version else self.name

    @property
    def is_valid(self) -> bool:
        """Whether a dataset can have this name and version."""
        return bool(_NAME.fullmatch(self.name) and is_version(self.version))

    @property
    def folder(self) -> str:
        """The prefix of its objects in the bucket, with a trailing slash."""
        return f"{DATASETS}{self}/"

    def uri(self, bucket: str) -> str:
        """Return the `gs://` form of its folder."""
        return gs(bucket, self.folder)

    def check(self) -> None:
        """Raise UsageError unless a new dataset can have this name and version."""
        if not _NAME.fullmatch(self.name):
            raise _bad_name(self.name)
        if not is_version(self.version):
            raise UsageError(
                f"'{self.version}' cannot be the version of a dataset.",
                hint="Three numbers without leading zeros, such as 1.0.0.",
                version=self.version,
            )


class PinnedDataset(DatasetRef, frozen=True):
    """One version of a dataset together with its content: it may be removed, and uploaded again."""

    manifest_sha256: Sha256


def is_version(text: str) -> bool:
    """Return whether a text is three numbers without leading zeros, with dots between."""
    return bool(_VERSION.fullmatch(text))


def _bad_name(name: str) -> UsageError:
    suggestion = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:100]
    return UsageError(
        f"'{name}' cannot be the name of a dataset.",
        hint="Small letters, digits and _, a letter first, at most 100"
        + (f": for instance {suggestion}." if suggestion else "."),
        name=name,
    )
