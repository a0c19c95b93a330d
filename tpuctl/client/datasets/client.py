"""The part of the client that is about datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from tpuctl.client.context import Call, Context, Stop
from tpuctl.client.datasets import requests, steps
from tpuctl.client.datasets.dataset import Dataset
from tpuctl.client.datasets.records import DatasetInfo
from tpuctl.client.options import check_options
from tpuctl.client.records import Progress, ProgressCallback
from tpuctl.data.options import Channels, TokenKind
from tpuctl.data.output.manifest import FileFormat
from tpuctl.datasets import DatasetRef
from tpuctl.display.listing import Listing
from tpuctl.flows.datasets.request import UploadRequest

if TYPE_CHECKING:
    from tpuctl.flows.datasets.conversion import ConversionProgress

COLUMNS: Mapping[str, Callable[[DatasetInfo], object]] = {
    "name": lambda dataset: dataset.name,
    "version": lambda dataset: dataset.version,
    "splits": lambda dataset: ", ".join(split.name for split in dataset.splits),
    "records": lambda dataset: dataset.records,
    "shards": lambda dataset: dataset.shards,
    "bytes": lambda dataset: dataset.bytes,
}


CONVERTED = ("splits", "tokens", "vocabulary", "length", "text", "format", "keep")
"""Options of `upload` that are no fields of its request as they are."""


class UploadOptions(TypedDict, total=False):
    """The options of `upload`; what is left out is as on the command line."""

    version: str
    splits: Mapping[str, float]
    """Share of each split, for a source without splits."""
    accelerator: str
    """Type that will read it: makes the number of shards a multiple of its hosts."""
    hosts: int
    """As `accelerator`, by the number of hosts."""
    shards: int
    """Of each split."""
    shard_size: int
    """Bytes that a shard is to have."""
    seed: int
    resize: tuple[int, int]
    """Height and width of all images."""
    channels: Channels
    """Channels of all images, or `keep` for as many as each has."""
    label: str
    """Column with the class."""
    types: Mapping[str, Literal["int", "float", "bool", "text", "bytes", "label"]]
    """Types of columns."""
    tokens: TokenKind
    """Replace text by ids of words, or of pieces of words."""
    vocabulary: int | str | Path | Sequence[str]
    """Size of the vocabulary to build, its file, or its tokens."""
    length: int
    """Token ids of a record."""
    text: str
    """Column with the text."""
    format: str
    """Of the source, where names of files do not tell."""
    file_format: FileFormat
    """Of the shards: `arrayrecord` for random access, as Grain reads; by default `tfrecord`."""
    skip_bad: bool
    keep: str | Path
    """Folder that gets a copy of the shards."""


class DatasetClient:
    """Uploads and finds datasets."""

    _context: Context

    def upload(
        self, name: str, source: str | Path, *, progress: ProgressCallback | None = None,
        stop: Stop | None = None, **options: Unpack[UploadOptions],
    ) -> Dataset:  # fmt: skip
        """Convert a source, here or `gs://`, to shards in the bucket, and return the dataset.

        The dataset appears when all of it is there. After a stop or a failure the same call converts only
        what is missing. Raises ConflictError where this version is there with other content, UsageError and
        BadRecordsError for what is wrong with the source.
        """
        self._context.require_chosen_project()
        request = _request(name, source, options)
        keep = options.get("keep")
        with Call(progress, stop).running() as call:
            steps.check_source(self._context, request)
            with steps.opened_plan(self._context, request, call.count("records", "records listed")) as plan:

                def report(state: ConversionProgress) -> None:
                    text = f"{state.records} of {state.total} records"
                    call.report(Progress(text, state.records, state.total, "records"))

                place = None if keep is None else Path(keep)
                uploaded = steps.upload(self._context, plan, request, report, place)
        return Dataset(self._context, uploaded.manifest)

    def datasets(self) -> Listing[DatasetInfo]:
        """Return every version of every dataset in the bucket."""
        bucket = self._context.cloud.data_bucket.name
        records = [DatasetInfo._of(manifest, bucket) for manifest in steps.manifests(self._context)]
        return Listing(records, "datasets", COLUMNS)

    def dataset(self, name: str) -> Dataset:
        """Return the dataset of a name, NAME/VERSION or the newest version; raises NotFoundError."""
        return Dataset(self._context, steps.manifest(self._context, DatasetRef.parse(name)))


def _request(name: str, source: str | Path, options: UploadOptions) -> UploadRequest:
    check_options(options, UploadOptions)
    splits = options.get("splits")
    same: dict[str, Any] = {name: value for name, value in options.items() if name not in CONVERTED}
    return requests.upload_request(
        name,
        source,
        splits=",".join(f"{split}={share}" for split, share in splits.items()) if splits else None,
        tokens=requests.token_options(
            options.get("tokens"), options.get("vocabulary"), options.get("length"), options.get("text")
        ),
        kind=options.get("format"),
        **same,
    )
