"""The client of a request, by its User-Agent or x-goog-api-client header."""

from __future__ import annotations

from collections.abc import Mapping

GRPC = "gRPC"
HTTP = "REST"
"""The official Cloud TPU client's REST transport, requests, urllib, curl: every plain HTTP client."""

SIGNS: tuple[tuple[str, str], ...] = (
    ("gsutil/", "gsutil"),  # before gcloud, whose name it bears too
    ("google-cloud-sdk", "gcloud"),
    ("gccl-gcs-cmd/tm.", "transfer_manager"),
    ("gcloud-python", "google-cloud-storage"),
    ("gcsfs", "gcsfs"),
    ("tensorstore", "tensorstore"),
    ("object_store", "obstore"),
    ("tsl", "tf.io.gfile"),
)
"""Part of its headers -> client; the first match counts."""


def client_of(headers: Mapping[str, str]) -> str:
    """Return the name of the client that sends these headers."""
    signature = " ".join(headers.get(name, "") for name in ("User-Agent", "x-goog-api-client")).lower()
    return next((client for sign, client in SIGNS if sign in signature), HTTP)
