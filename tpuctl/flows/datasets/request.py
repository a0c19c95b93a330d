"""Defines the request of an upload, which is sent to Beam workers, too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tpuctl.data.options import Options
from tpuctl.data.output.manifest import FileFormat
from tpuctl.datasets import DatasetRef


class UploadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A source, and all that decides on the dataset that is made of it; can be sent as JSON or pickled."""

    source: str
    """Path of a file or a folder; `gs://BUCKET/NAME` of an object or a folder in a bucket."""
    ref: DatasetRef
    kind: str | None = None
    """Kind of source, a key of `READERS`; None: inferred from the names of files."""
    options: Options = Options()
    splits: str | None = None
    """Shares of the splits, `train=0.8,test=0.2`; None: those of the source, or all in one."""
    hosts: int = 1
    """TPU hosts that will read the dataset."""
    shards: int | None = None
    """Shards of each split; None: as many as `shard_size` asks for."""
    shard_size: int | None = None
    """In bytes; None: that of TensorFlow's guide."""
    seed: int = 0
    skip_bad: bool = False
    """Leave bad records out instead of refusing the source."""
    vocabulary: tuple[str, ...] | None = None
    """Tokens by their ids; None: no tokens, or a vocabulary made from the training split."""

    file_format: FileFormat = "tfrecord"
    """Of the shards."""

    headers: bytes = b""
    """`Source.headers` of its plan, so that no worker looks at every picture again."""

    @property
    def is_in_bucket(self) -> bool:
        """Whether the source is in a bucket, and not on this machine."""
        return self.source.startswith("gs://")

    @property
    def source_exists(self) -> bool:
        """Whether there is a file or a folder at the path of the source; in a bucket, reading it tells."""
        return self.is_in_bucket or Path(self.source).exists()

    def fixed(self, vocabulary: tuple[str, ...] | None, headers: bytes = b"") -> UploadRequest:
        """Return the request with an absolute path and what its plan has learnt: for other processes."""
        source = self.source if self.is_in_bucket else str(Path(self.source).absolute())
        return msgspec.structs.replace(self, source=source, vocabulary=vocabulary, headers=headers)
