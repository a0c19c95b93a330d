"""Which client a request is from: each says so in its User-Agent or in x-goog-api-client."""

from __future__ import annotations

from collections.abc import Mapping

GRPC = "gRPC"
HTTP = "REST"
"""The official Cloud TPU client's REST transport, requests, urllib, curl: whoever speaks plain HTTP."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("gsutil/", "gsutil"),  # before gcloud, whose name it bears too
    ("google-cloud-sdk", "gcloud"),
    ("gccl-gcs-cmd/tm.", "transfer_manager"),
    ("gcloud-python", "google-cloud-storage"),
    ("gcsfs", "gcsfs"),
    ("tensorstore", "tensorstore"),
    ("tsl", "tf.io.gfile"),
)
"""Part of what it says -> client, the first that fits."""


def client_of(headers: Mapping[str, str]) -> str:
    """Return the name of the client that sends these headers."""
    said = " ".join(headers.get(name, "") for name in ("User-Agent", "x-goog-api-client")).lower()
    return next((client for sign, client in SIGNS if sign in said), HTTP)
