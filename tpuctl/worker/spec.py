"""What the launcher tells the program on the host; a JSON file of its own schema."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple

SCHEMA = 1


class Spec(NamedTuple):
    """One worker's part of one attempt of a run."""

    bucket: str
    run: str
    attempt: int
    worker: int
    workers: int
    tpu_uid: str
    framework: str
    script: str
    arguments: List[str]
    dependencies: List[str]
    bundle: str
    """Object that holds the code."""
    bundle_sha256: str
    folder: str
    """This worker's folder in the bucket, with a trailing slash."""
    environment: Dict[str, str]


def load(path: str) -> Spec:
    """Return the spec in a file; raises ValueError for another schema."""
    with open(path, encoding="utf-8") as stream:
        content: Dict[str, Any] = json.load(stream)
    if content.pop("schema") != SCHEMA:
        raise ValueError("%s is not of schema %d" % (path, SCHEMA))
    return Spec(**content)
