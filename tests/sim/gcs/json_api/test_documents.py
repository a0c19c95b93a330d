"""The JSON documents of each operation, whole: as Google's reference of the JSON API has them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.token_server import project_number

NUMBER = str(project_number(PROJECT))
TEAMS = [("owners", "OWNER"), ("editors", "OWNER"), ("viewers", "READER")]
CRC32C, MD5 = "rth90Q==", "jXd/OF09/siBXSD3SWAm3A=="
"""Of `data`."""
TIMES = ("timeCreated", "updated", "timeStorageClassUpdated", "timeFinalized")


class Json:
    """The JSON API over plain HTTP."""

    def __init__(self, gcs: RunningGcs, http: requests.Session) -> None:
        self.url, self._http = gcs.url, http

    def __call__(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        answer = self._http.request(method, f"{self.url}/storage/v1/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def upload(self, name: str = "dir/a", data: bytes = b"data", **query: str) -> Any:
        place = f"{self.url}/upload/storage/v1/b/{BUCKET}/o"
        headers = {"Content-Type": "text/x"}
        answer = self._http.post(place, data=data, headers=headers, params={"name": name, **query})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def api(gcs: RunningGcs, http: requests.Session) -> Json:
    return Json(gcs, http)


def entries(kind: str, **names: str) -> list[dict[str, str]]:
    """Return an ACL as it is by default."""
    return [
        {
            "kind": f"storage#{kind}",
            **names,
            "entity": f"project-{team}-{NUMBER}",
            "role": role,
            "etag": "CAE=",
        }
        for team, role in TEAMS
    ]


def without_times(resource: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in resource.items() if name not in TIMES}


def bucket_document(api: Json) -> dict[str, Any]:
    return {
        "kind": "storage#bucket",
        "selfLink": f"{api.url}/storage/v1/b/{BUCKET}",
        "id": BUCKET,
        "name": BUCKET,
        "projectNumber": NUMBER,
        "metageneration": "1",
        "storageClass": "STANDARD",
        "etag": "CAE=",
        "rpo": "DEFAULT",
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": False},
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
        "location": "US",
        "locationType": "multi-region",
    }


def object_document(api: Json, generation: str, name: str = "dir%2Fa") -> dict[str, Any]:
    path = f"storage/v1/b/{BUCKET}/o/{name}"
    return {
        "kind": "storage#object",
        "id": f"{BUCKET}/{name.replace('%2F', '/')}/{generation}",
        "selfLink": f"{api.url}/{path}",
        "mediaLink": f"{api.url}/download/{path}?generation={generation}&alt=media",
        "name": name.replace("%2F", "/"),
        "bucket": BUCKET,
        "generation": generation,
        "metageneration": "1",
        "storageClass": "STANDARD",
        "size": "4",
        "md5Hash": MD5,
        "crc32c": CRC32C,
        "contentType": "text/x",
    }


def test_a_bucket(api: Json) -> None:
    bucket = api("GET", f"b/{BUCKET}")
    assert bucket["timeCreated"] == bucket["updated"]
    assert without_times(bucket) == bucket_document(api)
    full = api("GET", f"b/{BUCKET}?projection=full")
    assert full == bucket | {
        "acl": entries("bucketAccessControl", bucket=BUCKET),
        "defaultObjectAcl": entries("objectAccessControl"),
        "owner": {"entity": f"project-owners-{NUMBER}"},
    }
    assert api("GET", f"b/{BUCKET}?projection=noAcl") == bucket == api("GET", f"b/{BUCKET}?projection=NOACL")


@pytest.mark.parametrize(
    ("location", "kind"),
    [("EU", "multi-region"), ("asia", "multi-region"), ("US-EAST1", "region"),
     *((place, "dual-region") for place in ("NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1"))],
)  # fmt: skip
def test_a_location_has_its_type(api: Json, location: str, kind: str) -> None:
    made = api("POST", f"b?project={PROJECT}", {"name": "acme-there", "location": location})
    assert (made["location"], made["locationType"], "rpo" in made) == (
        location.upper(),
        kind,
        kind != "region",
    )
    assert api("GET", "b/acme-there/storageLayout") == {
        "kind": "storage#storageLayout",
        "bucket": "acme-there",
        "location": location.upper(),
        "locationType": kind,
        "hierarchicalNamespace": {"enabled": False},
    }


def test_lists_of_buckets_and_their_pages(api: Json) -> None:
    for name in ("acme-b", "acme-a", "other"):
        api("POST", f"b?project={PROJECT}", {"name": name})
    api("POST", "b?project=stranger", {"name": "acme-strange"})
    listed = api("GET", f"b?project={PROJECT}")
    assert set(listed) == {"kind", "items"}
    assert listed["kind"] == "storage#buckets"
    assert [item["name"] for item in listed["items"]] == ["acme-a", "acme-b", BUCKET, "other"]
    names, query = [], f"b?project={PROJECT}&prefix=acme&maxResults=2"
    first = api("GET", query)
    second = api("GET", f"{query}&pageToken={first['nextPageToken']}")
    names = [[item["name"] for item in page["items"]] for page in (first, second)]
    assert names == [["acme-a", "acme-b"], [BUCKET]]
    assert "nextPageToken" not in second
    assert len(api("GET", f"b?project={PROJECT}&maxResults=0")["items"]) == 4
    assert api("GET", "b?project=nobody") == {"kind": "storage#buckets", "items": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "parameter"),
    [
        ("GET", "b", None, "project"),
        ("POST", "b", {"name": "acme-new"}, "project"),
        ("POST", f"b?project={PROJECT}", {}, "name"),
        ("POST", f"b/{BUCKET}/lockRetentionPolicy", None, "ifMetagenerationMatch"),
        ("GET", f"b/{BUCKET}/o/dir%2Fa?softDeleted=true", None, "generation"),
        ("POST", f"b/{BUCKET}/o/dir%2Fa/restore", None, "generation"),
    ],
)
def test_a_parameter_that_is_missing_is_named(
    api: Json, method: str, path: str, body: object, parameter: str
) -> None:
    error = api(method, path, body, status=400)["error"]
    assert (error["errors"][0]["reason"], error["message"]) == (
        "required",
        f"Required parameter: {parameter}",
    )


def test_a_bucket_is_patched_and_updated(api: Json) -> None:
    api("PATCH", f"b/{BUCKET}", {"labels": {"a": "1", "b": "2"}, "versioning": {"enabled": True}})
    patched = api("PATCH", f"b/{BUCKET}", {"labels": {"a": None}, "name": "other", "colour": "red"})
    assert (patched["labels"], patched["versioning"], patched["metageneration"]) == (
        {"b": "2"},
        {"enabled": True},
        "3",
    )
    assert (patched["name"], "colour" in patched) == (BUCKET, False)
    updated = api("PUT", f"b/{BUCKET}", {"labels": {"c": "3"}})
    assert (updated["labels"], "versioning" in updated, updated["etag"]) == ({"c": "3"}, False, "CAQ=")
    api("PATCH", f"b/{BUCKET}?ifMetagenerationMatch=3", {}, status=412)
    api("GET", f"b/{BUCKET}?ifMetagenerationNotMatch=4", status=304)
    api("DELETE", f"b/{BUCKET}?ifMetagenerationMatch=3", status=412)
    api("DELETE", f"b/{BUCKET}?ifMetagenerationMatch=4", status=204)


def test_predefined_acls_of_a_bucket(api: Json) -> None:
    everybody = {"entity": "allUsers", "role": "READER"}
    made = api(
        "POST",
        f"b?project={PROJECT}&predefinedAcl=publicReadWrite&predefinedDefaultObjectAcl=publicRead&projection=full",
        {"name": "acme-open"},
    )
    assert made["acl"][-1].items() >= {"entity": "allUsers", "role": "WRITER"}.items()
    assert made["defaultObjectAcl"][-1].items() >= everybody.items()
    assert len(made["acl"]) == len(made["defaultObjectAcl"]) == 4
    changed = api("PATCH", "b/acme-open?predefinedAcl=authenticatedRead&projection=full", {})
    assert changed["acl"][-1].items() >= {"entity": "allAuthenticatedUsers", "role": "READER"}.items()
    assert changed["defaultObjectAcl"] == made["defaultObjectAcl"]
    for name in ("private", "projectPrivate", "bucketOwnerRead", "bucketOwnerFullControl"):
        closed = api("PATCH", f"b/acme-open?predefinedAcl={name}&projection=full", {})
        assert closed["acl"] == entries("bucketAccessControl", bucket="acme-open")
    error = api("PATCH", "b/acme-open?predefinedAcl=mine", {}, status=400)["error"]
    assert error["message"] == "Invalid predefined ACL: mine"


def test_objects_can_be_retained_if_the_bucket_says_so(api: Json) -> None:
    made = api("POST", f"b?project={PROJECT}&enableObjectRetention=True", {"name": "acme-kept"})
    assert made["objectRetention"] == {"mode": "Enabled"}
    assert "objectRetention" not in api(
        "POST", f"b?project={PROJECT}&enableObjectRetention=1", {"name": "acme-x"}
    )


def test_the_policy_of_a_bucket(api: Json) -> None:
    path = f"b/{BUCKET}/iam"
    first = {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{BUCKET}",
        "version": 1,
        "etag": "CAE=",
        "bindings": [
            {
                "role": "roles/storage.legacyBucketOwner",
                "members": [f"projectEditor:{PROJECT}", f"projectOwner:{PROJECT}"],
            },
            {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{PROJECT}"]},
        ],
    }
    assert api("GET", path) == first
    binding = {"role": "roles/storage.objectViewer", "members": ["user:ada@example.com"]}
    changed = api("PUT", path, {"bindings": [binding], "etag": "CAE="})
    assert changed == first | {"bindings": [binding], "etag": "CAI="} == api("GET", path)
    api("PUT", path, {"bindings": [], "etag": "CAE="}, status=412)
    assert api("PUT", path, {"version": 3}) == first | {"version": 3, "bindings": [], "etag": "CAM="}
    error = api("PUT", path, {"bindings": {}}, status=400)["error"]
    assert error["message"] == "Invalid value for field: bindings"


def test_small_documents(api: Json) -> None:
    assert api("GET", f"b/{BUCKET}/iam/testPermissions?permissions=a&permissions=b") == {
        "kind": "storage#testIamPermissionsResponse",
        "permissions": ["a", "b"],
    }
    assert api("GET", f"b/{BUCKET}/managedFolders") == {"kind": "storage#managedFolders"}
    assert api("GET", f"projects/{PROJECT}/serviceAccount") == {
        "kind": "storage#serviceAccount",
        "email_address": f"service-{NUMBER}@gs-project-accounts.iam.gserviceaccount.com",
    }


def test_a_retention_policy_is_locked(api: Json) -> None:
    error = api("POST", f"b/{BUCKET}/lockRetentionPolicy?ifMetagenerationMatch=1", status=400)["error"]
    assert error["message"] == "Bucket has no retention policy to lock."
    api("PATCH", f"b/{BUCKET}", {"retentionPolicy": {"retentionPeriod": 60}})
    api("POST", f"b/{BUCKET}/lockRetentionPolicy?ifMetagenerationMatch=1", status=412)
    locked = api("POST", f"b/{BUCKET}/lockRetentionPolicy?ifMetagenerationMatch=2")["retentionPolicy"]
    assert (locked["isLocked"], locked["retentionPeriod"]) == (True, "60")
    api("PATCH", f"b/{BUCKET}", {"retentionPolicy": None}, status=403)


def test_an_object(api: Json) -> None:
    made = api.upload()
    assert len({made[name] for name in TIMES}) == 1
    generation = made["generation"]
    decoded = base64.b64decode(made.pop("etag"))
    assert (decoded[:1], decoded[-2:]) == (b"\x08", b"\x10\x01")
    assert without_times(made) == object_document(api, generation)
    got = api("GET", f"b/{BUCKET}/o/dir%2Fa")
    assert without_times(got) == object_document(api, generation) | {"etag": got["etag"]}
    names = {"bucket": BUCKET, "object": "dir/a", "generation": generation}
    assert api("GET", f"b/{BUCKET}/o/dir%2Fa?projection=full") == got | {
        "acl": entries("objectAccessControl", **names),
        "owner": {"entity": f"project-owners-{NUMBER}"},
    }
    selected = api("GET", f"b/{BUCKET}/o/dir%2Fa?fields=name,generation")
    assert selected == {"name": "dir/a", "generation": generation}


def test_an_object_is_patched_and_updated(api: Json) -> None:
    api.upload()
    place = f"b/{BUCKET}/o/dir%2Fa"
    patched = api("PATCH", place, {"metadata": {"a": "1"}, "contentLanguage": "en", "size": "9"})
    assert (patched["metadata"], patched["contentLanguage"], patched["size"]) == ({"a": "1"}, "en", "4")
    assert (patched["contentType"], patched["metageneration"]) == ("text/x", "2")
    updated = api("PUT", place, {"metadata": {"b": "2"}})
    assert (updated["metadata"], "contentLanguage" in updated, updated["metageneration"]) == (
        {"b": "2"},
        False,
        "3",
    )
    opened = api("PATCH", f"{place}?predefinedAcl=publicRead&projection=full", {})
    assert opened["acl"][-1].items() >= {"entity": "allUsers", "role": "READER"}.items()


def test_lists_of_objects(api: Json) -> None:
    assert api("GET", f"b/{BUCKET}/o") == {"kind": "storage#objects"}
    for name in ("a", "dir/a", "dir/b", "z"):
        api.upload(name)
    listed = api("GET", f"b/{BUCKET}/o?delimiter=/")
    assert set(listed) == {"kind", "items", "prefixes"}
    assert [item["name"] for item in listed["items"]] == ["a", "z"]
    assert listed["prefixes"] == ["dir/"]
    assert listed["items"][0] == api("GET", f"b/{BUCKET}/o/a")
    first = api("GET", f"b/{BUCKET}/o?maxResults=3")
    second = api("GET", f"b/{BUCKET}/o?maxResults=3&pageToken={first['nextPageToken']}")
    assert [item["name"] for item in (*first["items"], *second["items"])] == ["a", "dir/a", "dir/b", "z"]
    assert "nextPageToken" not in second
    only = api("GET", f"b/{BUCKET}/o?prefix=dir/&delimiter=/&startOffset=dir/b")
    assert [item["name"] for item in only["items"]] == ["dir/b"]
    assert api("GET", f"b/{BUCKET}/o?prefix=q") == {"kind": "storage#objects"}


def test_a_rewrite_in_several_calls(api: Json) -> None:
    mebibyte = 1 << 20
    source = api.upload("a", bytes(5 * mebibyte // 2))
    path = f"b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/b"
    sizes, token = [], ""
    while True:
        response = api("POST", f"{path}?maxBytesRewrittenPerCall={mebibyte}{token}")
        sizes.append(response["totalBytesRewritten"])
        assert (response["kind"], response["objectSize"]) == ("storage#rewriteResponse", str(source["size"]))
        assert response["done"] is ("resource" in response) is ("rewriteToken" not in response)
        if response["done"]:
            break
        token = f"&rewriteToken={response['rewriteToken']}"
    assert sizes == [str(mebibyte), str(2 * mebibyte), source["size"]]
    assert (response["resource"]["name"], response["resource"]["md5Hash"]) == ("b", source["md5Hash"])
    error = api("POST", f"b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/c?{token[1:]}", status=400)["error"]
    assert error["message"] == "The rewrite token is for another rewrite."
    for limit in ("0", "1", str(mebibyte + 1), "x"):
        api("POST", f"{path}?maxBytesRewrittenPerCall={limit}", status=400)
    assert api("POST", f"{path}?rewriteToken=x", status=400)["error"]["message"] == "Invalid rewrite token."
    whole = api("POST", path)
    assert (whole["done"], whole["totalBytesRewritten"]) == (True, source["size"])
    api("POST", f"{path}?maxBytesRewrittenPerCall={mebibyte}&ifGenerationMatch=0", status=412)


def test_copies_moves_and_composed_objects(api: Json) -> None:
    source = api.upload("a")
    copied = api("POST", f"b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/dir%2Fb")
    assert without_times(copied) == object_document(api, copied["generation"], "dir%2Fb") | {
        "etag": copied["etag"]
    }
    replaced = api("POST", f"b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/c", {"contentType": "text/y"})
    assert replaced["contentType"] == "text/y"
    generation = source["generation"]
    for query, status in (
        (f"sourceGeneration={generation}", 200),
        ("sourceGeneration=1", 404),
        ("ifSourceGenerationMatch=1", 412),
        ("ifSourceMetagenerationMatch=2", 412),
        ("ifGenerationMatch=0", 412),
    ):
        api("POST", f"b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/c?{query}", status=status)
    api("POST", f"b/{BUCKET}/o/a/moveTo/o/c?ifSourceGenerationMatch=1", status=412)
    api("POST", f"b/{BUCKET}/o/a/moveTo/o/c?ifGenerationMatch=0", status=412)
    moved = api("POST", f"b/{BUCKET}/o/a/moveTo/o/d?ifSourceGenerationMatch={generation}&ifGenerationMatch=0")
    assert (moved["name"], moved["crc32c"]) == ("d", CRC32C)
    api("GET", f"b/{BUCKET}/o/a", status=404)
    sources = [{"name": "d", "generation": moved["generation"]}, {"name": "dir/b"}]
    composed = api(
        "POST", f"b/{BUCKET}/o/e/compose", {"sourceObjects": sources, "destination": {"metadata": {"k": "v"}}}
    )
    assert (composed["componentCount"], composed["size"], composed["metadata"]) == (2, "8", {"k": "v"})
    assert "md5Hash" not in composed
    again = api("POST", f"b/{BUCKET}/o/f/compose", {"sourceObjects": [{"name": "e"}, {"name": "d"}]})
    assert again["componentCount"] == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "You must provide at least one source component."),
        ({"sourceObjects": []}, "You must provide at least one source component."),
        ({"sourceObjects": {"name": "a"}}, "You must provide at least one source component."),
        (
            {"sourceObjects": [{"name": "a"}] * 33},
            "The number of source components provided (33) exceeds the maximum (32)",
        ),
        ({"sourceObjects": [{"name": "a"}, 5]}, "Invalid value for field: sourceObjects"),
        ({"sourceObjects": [{"name": "a"}], "destination": [1]}, "Invalid value for field: destination"),
        (
            {"sourceObjects": [{"name": "a", "objectPreconditions": [1]}]},
            "Invalid value for field: objectPreconditions",
        ),
        ({"sourceObjects": [{"generation": 1}]}, "Required parameter: name"),
    ],
)
def test_what_cannot_be_composed_is_explained(api: Json, body: dict[str, Any], message: str) -> None:
    api.upload("a")
    assert api("POST", f"b/{BUCKET}/o/whole/compose", body, status=400)["error"]["message"] == message
    api("POST", f"b/{BUCKET}/o/whole/compose", {"sourceObjects": [{"name": "a"}] * 32})


def test_deleted_objects_are_listed_and_restored(api: Json) -> None:
    week = 7 * 86400
    api("PATCH", f"b/{BUCKET}", {"softDeletePolicy": {"retentionDurationSeconds": week}})
    made = api.upload("a")
    api("DELETE", f"b/{BUCKET}/o/a?ifGenerationMatch=1", status=412)
    api("DELETE", f"b/{BUCKET}/o/a", status=204)
    (listed,) = api("GET", f"b/{BUCKET}/o?softDeleted=true")["items"]
    assert {"softDeleteTime", "hardDeleteTime"} <= set(listed)
    generation = f"generation={made['generation']}"
    assert api("GET", f"b/{BUCKET}/o/a?softDeleted=true&{generation}") == listed
    api("GET", f"b/{BUCKET}/o/a?softDeleted=true&generation=1", status=404)
    api("POST", f"b/{BUCKET}/o/a/restore?{generation}&ifGenerationMatch=5", status=412)
    restored = api("POST", f"b/{BUCKET}/o/a/restore?{generation}")
    assert (restored["name"], restored["generation"] > made["generation"]) == ("a", True)
    assert not {"softDeleteTime", "hardDeleteTime"} & set(restored)


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        (f"b/{BUCKET}/acl", "bucketAccessControl", {"bucket": BUCKET}),
        (f"b/{BUCKET}/defaultObjectAcl", "objectAccessControl", {"bucket": BUCKET}),
        (f"b/{BUCKET}/o/a/acl", "objectAccessControl", {"bucket": BUCKET, "object": "a"}),
    ],
)
def test_lists_of_access(api: Json, path: str, kind: str, names: dict[str, str]) -> None:
    api.upload("a")
    entry = {"entity": "user-ann", "role": "READER"}
    document = {
        "kind": f"storage#{kind}",
        "id": "/".join([*names.values(), "user-ann"]),
        **names,
        **entry,
        "etag": "CAE=",
    }
    assert api("POST", path, entry) == document == api("GET", f"{path}/user-ann")
    listed = api("GET", path)
    assert (listed["kind"], listed["items"][-1]) == (f"storage#{kind}s", document)
    assert [(item["entity"], item["role"]) for item in listed["items"][:-1]] == [
        (f"project-{team}-{NUMBER}", role) for team, role in TEAMS
    ]
    owner = document | {"role": "OWNER"}
    assert api("PUT", f"{path}/user-ann", {"role": "OWNER"}) == owner
    assert api("PATCH", f"{path}/user-ann", {"role": "OWNER", "entity": "user-bob"}) == owner
    writer = api(
        "PATCH", f"{path}/user-ann", {"role": "WRITER"}, status=200 if path.endswith(f"{BUCKET}/acl") else 400
    )
    assert writer.get("role", "refused") == ("WRITER" if path.endswith(f"{BUCKET}/acl") else "refused")
    error = api("PATCH", f"{path}/user-bob", {"role": "OWNER"}, status=404)["error"]
    assert error["message"] == "The specified access control list entry does not exist."
    assert (
        api("POST", path, {"role": "OWNER"}, status=400)["error"]["message"] == "Required parameter: entity"
    )
    api("DELETE", f"{path}/user-ann", status=204)
    api("DELETE", f"{path}/user-ann", status=404)
    assert len(api("GET", path)["items"]) == 3
