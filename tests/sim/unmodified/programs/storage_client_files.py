# /// script
# dependencies = ["google-cloud-storage"]
# ///
"""google-cloud-storage as programs use it on a TPU VM, without an argument; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys

from google.api_core.exceptions import NotFound, PreconditionFailed
from google.cloud import storage

client = storage.Client()
bucket = client.bucket("sim-project-tpuctl")
data = os.urandom(3 << 20)
big = bucket.blob("client/big", chunk_size=1 << 20)
big.upload_from_string(data)
bucket.blob("client/a/small").upload_from_string("small")
with bucket.blob("client/lines").open("w") as lines:
    lines.write("one\ntwo\n")
report = {
    "project": client.project,
    "whole": big.download_as_bytes() == data,
    "part": big.download_as_bytes(start=10, end=19) == data[10:20],
    "lines": bucket.blob("client/lines").open().read().splitlines(),
    "listed": [blob.name for blob in client.list_blobs(bucket, prefix="client/")],
    "folders": sorted(
        prefix
        for page in client.list_blobs(bucket, prefix="client/", delimiter="/").pages
        for prefix in page.prefixes
    ),
}
try:
    bucket.blob("client/lines").upload_from_string("three", if_generation_match=0)
except PreconditionFailed as error:
    report["refused"] = error.code
bucket.rename_blob(bucket.blob("client/a/small"), "client/renamed")
bucket.delete_blobs(list(client.list_blobs(bucket, prefix="client/")))
try:
    bucket.blob("client/renamed").download_as_text()
except NotFound as error:
    report["missing"] = error.code
json.dump(report, sys.stdout)
