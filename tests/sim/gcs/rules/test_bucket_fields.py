"""The check of a bucket's fields: an invalid value is refused and changes nothing."""

from __future__ import annotations

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs


@pytest.mark.parametrize(
    "changes",
    [
        {"lifecycle": {"rule": [{"action": {"type": "Explode"}, "condition": {"age": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": "old"}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"createdBefore": "x"}}]}},
        {"lifecycle": {"rule": [5]}},
        {"softDeletePolicy": {"retentionDurationSeconds": "5"}},
        {"softDeletePolicy": {"retentionDurationSeconds": "soon"}},
        {"retentionPolicy": {"retentionPeriod": "-1"}},
        {"acl": [{"entity": 5, "role": "OWNER"}]},
        {"acl": ["x"]},
    ],
)
def test_an_invalid_field_is_refused(
    gcs: RunningGcs, http: requests.Session, changes: dict[str, object]
) -> None:
    url = f"{gcs.url}/storage/v1/b/{BUCKET}"
    assert http.patch(url, json=changes).status_code == 400
    assert http.get(url).json()["metageneration"] == "1"
