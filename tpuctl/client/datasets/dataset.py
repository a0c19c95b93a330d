"""The handle of one version of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.client.context import Call, Context, Stop
from tpuctl.client.datasets import steps
from tpuctl.client.datasets.records import DatasetInfo
from tpuctl.client.records import ProgressCallback
from tpuctl.datasets import DatasetRef
from tpuctl.display.listing import Picture
from tpuctl.display.markup import record_html

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest
    from tpuctl.flows.datasets.head import Example
    from tpuctl.flows.datasets.pull import DatasetCopy


class Dataset:
    """One version of a dataset in the bucket, as it was when this handle was made."""

    name: str
    version: str
    info: DatasetInfo
    """What is known of it."""

    def __init__(self, context: Context, manifest: Manifest) -> None:
        self._context = context
        self._manifest = manifest
        self.name = manifest.name
        self.version = manifest.version
        self.info = DatasetInfo._of(manifest, context.cloud.data_bucket.name)

    def __repr__(self) -> str:
        return f"<tpuctl.Dataset {self.name}/{self.version}: {self.info.records} records>"

    def _repr_html_(self) -> str:
        return record_html(self.info, f"Dataset {self.name}")

    @property
    def uri(self) -> str:
        """Its folder: `gs://...`."""
        return self.info.uri

    def head(self, count: int = 5, *, split: str = "") -> tuple[Example, ...]:
        """Return the first examples of a split, by default of the first one."""
        examples, _ = steps.head(self._context, self._manifest, split, count)
        return tuple(examples)

    def contact_sheet(self, count: int = 16, *, split: str = "") -> Picture:
        """Return the pictures of the first examples of a split side by side, which a notebook shows."""
        from tpuctl.client.datasets.pictures import sheet  # NumPy: not for the other calls

        examples, _ = steps.head(self._context, self._manifest, split, count)
        return sheet(examples, self._manifest)

    def verify(
        self, *, deep: bool = False, progress: ProgressCallback | None = None, stop: Stop | None = None
    ) -> None:
        """Raise StateError unless every object is as the manifest says; `deep` reads every record, too."""
        with Call(progress, stop).running() as call:
            report = call.count("files", "files checked")
            steps.verify(self._context, self._manifest, report, deep=deep)

    def pull(
        self,
        folder: str | Path | None = None,
        *,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> DatasetCopy:
        """Download it into a folder, by default one of its name, and verify each file."""
        place = Path(folder) if folder is not None else Path(self.name)
        with Call(progress, stop).running() as call:
            return steps.pull(self._context, self._manifest, place, call.line, call.count("bytes"))

    def remove(self) -> None:
        """Remove it from the bucket; runs that used it keep their records."""
        from tpuctl.flows.datasets import rm as flow

        bucket, context = self._context.cloud.data_bucket, self._context
        flow.remove(bucket, flow.plan_removal(bucket, DatasetRef(self.name, self.version), context.warn))
