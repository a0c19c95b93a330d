"""Warns before bytes leave the location of the source's bucket: Google bills them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl.bucket_layout import split_gs
from tpuctl.errors import TpuctlError
from tpuctl.flows.datasets.request import UploadRequest

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud


def traffic_warning(cloud: Cloud, request: UploadRequest, size: str) -> str:
    """Return the sentence about a source in another location than the bucket of datasets; empty for none.

    `size` is that of the dataset, for people. Without permission to look at a bucket, nothing is known.
    """
    if not request.is_in_bucket or not cloud.config.get("bucket"):
        return ""
    source = split_gs(request.source)[0]
    try:
        target = cloud.data_bucket.location()
        return "" if source == target.bucket else cloud.bucket_location(source).traffic(target, size)
    except TpuctlError:
        return ""
