"""Every rule refuses what is one beyond it and accepts what is just within; names of scopes and resources."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from tests.cloud.tpu.test_client import NODE, REQUEST
from tpuctl.cloud.tpu.rules import (
    AUTH,
    RESERVED,
    check_creation,
    check_node_name,
    disk_name,
    location,
    node_name,
    parse_node_name,
    scope_urls,
    zone_of,
)
from tpuctl.errors import UsageError
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    DataDisk,
    NodeId,
    NodeRequest,
    QueuedResourceId,
    QueuedResourceRequest,
)

KIB = 1 << 10
DISK = "projects/p/zones/europe-west4-a/disks/d"


def check(**fields: object) -> None:
    """Check the creation of a node with these fields."""
    check_creation(CreateNode(structs.replace(REQUEST, **fields)))  # type: ignore[arg-type]


def check_queued(node: NodeRequest = REQUEST, **fields: object) -> None:
    queued = QueuedResourceRequest(QueuedResourceId("cloud-tpu", "p", node.id.zone, node.id.name), node)
    check_creation(CreateQueuedResource(replace(queued, **fields)))  # type: ignore[arg-type]


def test_the_labels_of_the_documentation_are_accepted() -> None:
    check(
        labels={
            "team": "vision",
            "größe": "7-a_b",
            "a" * 63: "9" * 63,
            "empty": "",
            "漢字": "漢字",
            "a٣": "٣",
            "aⅷ²": "ⅷ²",
        }
    )
    check(labels={f"k{number}": "v" for number in range(64)})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "v"), ("Team", "v"), ("9k", "v"), ("-k", "v"), ("_k", "v"), ("a" * 64, "v"), ("ä" * 65, "v"),
        ("a b", "v"), ("a.b", "v"), ("a/b", "v"), ("ẞ", "v"), ("k\n", "v"), ("ü" * 63 + "ab", "v"),
        ("漢" * 43, "v"), ("k", "V"), ("k", "a b"), ("k", "9" * 64), ("k", "漢" * 43), ("k", "x\n"),
        ("k", "\udc80"), ("k\u200b", "v"), ("ǅ", "v"),
    ],
)  # fmt: skip
def test_other_labels_are_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=r"of (a )?label"):
        check(labels={key: value})


def test_65_labels_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^65 labels are too many\.$"):
        check(labels={f"k{number}": "v" for number in range(65)})


@pytest.mark.parametrize("name", ["a", "a1", "a-1", "a" * 63])
def test_names_of_nodes(name: str) -> None:
    check(id=replace(NODE, name=name))


@pytest.mark.parametrize("name", ["", "1a", "A", "a-", "-a", "a_b", "a.b", "a" * 64, "a\n", "ä"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a node"):
        check(id=replace(NODE, name=name))


def test_the_last_slice_has_a_name_too() -> None:
    fitting = structs.replace(REQUEST, id=replace(NODE, name="a" * 61))
    check_queued(fitting, slices=10)
    with pytest.raises(UsageError, match=r"'a{61}-0' to 'a{61}-10'"):
        check_queued(fitting, slices=11)
    check_queued(structs.replace(REQUEST, id=replace(NODE, name="a" * 63)))


def test_metadata_within_the_limits() -> None:
    check(metadata={"a" * 128: "x" * (256 * KIB), "enable-oslogin": "TRUE", "B_2": "\n€"})
    check(startup_script="x" * (256 * KIB))


@pytest.mark.parametrize("key", ["", "a" * 129, "a b", "a.b", "ä", "a\n", "a/b"])
def test_other_keys_of_metadata_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be a key of metadata"):
        check(metadata={key: "v"})


@pytest.mark.parametrize("key", ["ssh-keys", "sshKeys", "startup-script", "tpu-env", "agent-worker-number"])
def test_keys_that_others_set_are_reserved(key: str) -> None:
    with pytest.raises(UsageError, match=f"metadata key '{key}' is reserved"):
        check(metadata={key: "v"})


def test_values_of_metadata_are_counted_in_bytes() -> None:
    check(metadata={"k": "ä" * (128 * KIB)})
    with pytest.raises(UsageError, match=r"^The metadata value 'k' has 262,145 bytes\.$"):
        check(metadata={"k": "ä" * (128 * KIB) + "x"})
    with pytest.raises(UsageError, match=r"^The startup script has 262,145 bytes\.$"):
        check(startup_script="x" * (256 * KIB + 1))


def test_all_of_the_metadata_is_counted_with_key_and_script() -> None:
    ssh_key = len("ssh-keysada:ssh-ed25519 AAAA ada")
    rest = 256 * KIB - len("startup-script") - ssh_key - len("k")
    check(metadata={"k": "x" * rest}, startup_script="x" * (256 * KIB))
    with pytest.raises(UsageError, match="524,289 bytes in all"):
        check(metadata={"k": "x" * (rest + 1)}, startup_script="x" * (256 * KIB))


def test_tags() -> None:
    check(tags=("tpu", "a", "a" * 63, "lab-2"))
    for tag in ("", "A", "1a", "a-", "a_b", "a" * 64, "a,b"):
        with pytest.raises(UsageError, match="cannot be a network tag"):
            check(tags=(tag,))
    with pytest.raises(UsageError, match="65 network tags are too many"):
        check(tags=tuple(f"t{number}" for number in range(65)))


def test_disks_by_name_in_full_and_by_url() -> None:
    check(data_disks=(DataDisk("a"), DataDisk(DISK), DataDisk("b", read_only=True)))
    check(data_disks=(DataDisk(f"https://www.googleapis.com/compute/v1/{DISK}"),))


@pytest.mark.parametrize(
    "source",
    ["", "A", "a/b", "zones/z/disks/d", "projects/p/zones/z/disks/", "a:b", DISK.replace("zones", "regions")],
)
def test_what_is_no_disk_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="cannot name a disk"):
        check(data_disks=(DataDisk(source),))


def test_a_disk_of_another_zone_is_refused_with_its_zone() -> None:
    with pytest.raises(UsageError, match="is in us-east1-d, not in europe-west4-a") as refused:
        check(data_disks=(DataDisk("projects/p/zones/us-east1-d/disks/d"),))
    assert "--zone us-east1-d" in refused.value.hint


def test_a_disk_twice_is_refused_however_it_is_named() -> None:
    with pytest.raises(UsageError, match="named twice"):
        check(data_disks=(DataDisk("a", read_only=True), DataDisk("a")))


def test_several_hosts_share_a_disk_read_only() -> None:
    slice_of_4 = structs.replace(REQUEST, accelerator="v3-32", data_disks=(DataDisk("a"),))
    with pytest.raises(UsageError, match=r"^4 hosts can share disk 'a' only if nobody writes to it\.$"):
        check_creation(CreateNode(slice_of_4))
    check_creation(CreateNode(structs.replace(slice_of_4, data_disks=(DataDisk("a", read_only=True),))))
    with pytest.raises(UsageError, match=r"^2 hosts can share"):
        check_queued(structs.replace(REQUEST, data_disks=(DataDisk("a"),)), slices=2)


def test_scopes_are_urls_or_names_of_gcloud() -> None:
    assert scope_urls(()) == ()
    assert scope_urls(("storage-rw", f"{AUTH}pubsub", "storage-rw", "pubsub")) == (
        f"{AUTH}devstorage.read_write",
        f"{AUTH}pubsub",
    )
    assert len(scope_urls(("default", "gke-default"))) == 8
    check(scopes=("https://mail.google.com/",))


@pytest.mark.parametrize(
    ("scope", "hint"),
    [("storage-rx", "Did you mean storage-r"), ("https://evil.org/auth/x", "Give https://"), ("", "Give ")],
)
def test_other_scopes_are_refused(scope: str, hint: str) -> None:
    with pytest.raises(UsageError, match="no OAuth scope") as refused:
        check(scopes=(scope,))
    assert refused.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "name",
    ["r1", "-", "projects/q/locations/europe-west4-a/reservations/r1",
     "organizations/1/locations/europe-west4-a/reservations/-"],
)  # fmt: skip
def test_reservations(name: str) -> None:
    check_queued(reservation=name)


@pytest.mark.parametrize("name", ["R1", "r 1", "projects/q/reservations/r1", "a/b", "r1\n"])
def test_what_is_no_reservation_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a reservation"):
        check_queued(reservation=name)


def test_a_reservation_of_another_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="is in us-east1-d, not in europe-west4-a"):
        check_queued(reservation="projects/q/locations/us-east1-d/reservations/r1")


def test_spot_and_reserved_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="spot or uses reserved capacity, not both"):
        check(spot=True, reserved=True)
    with pytest.raises(UsageError, match="not both"):
        check_queued(structs.replace(REQUEST, spot=True), reservation="r1")


def test_a_spot_tpu_that_uses_no_reservation_is_accepted() -> None:
    check(spot=True)
    check(reserved=True)
    check_queued(structs.replace(REQUEST, spot=True))
    check_queued(reservation="r1")


@pytest.mark.parametrize("key", [*RESERVED])
def test_a_key_that_is_reserved_says_why(key: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(metadata={key: "x"})
    assert refused.value.message == f"The metadata key '{key}' is reserved."
    assert refused.value.hint == f"{RESERVED[key].capitalize()}."
    check(metadata={f"{key}x": "x"})


def test_what_google_sets_is_reserved() -> None:
    google = {key for key, reason in RESERVED.items() if reason == "Google sets it"}
    assert google == {
        "accelerator-type", "agent-worker-number", "instance-id", "tpu-env", "worker-network-endpoints"
    }  # fmt: skip


@pytest.mark.parametrize(("slices", "longest"), [(1, 63), (2, 61), (10, 61), (11, 60), (101, 59)])
def test_a_name_leaves_room_for_the_number_of_the_last_slice(slices: int, longest: int) -> None:
    check_node_name("n" * longest, slices)
    with pytest.raises(UsageError):
        check_node_name("n" * (longest + 1), slices)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("d", "projects/p/zones/z/disks/d"),
        ("projects/q/zones/y/disks/d", "projects/q/zones/y/disks/d"),
        ("https://www.googleapis.com/compute/v1/projects/q/zones/y/disks/d", "projects/q/zones/y/disks/d"),
        ("https://compute.googleapis.com/compute/beta/projects/q/zones/y/disks/d",
         "projects/q/zones/y/disks/d"),
    ],
)  # fmt: skip
def test_a_disk_has_its_full_name(source: str, name: str) -> None:
    assert disk_name(source, "p", "z") == name


SCOPE_PREFIX = "https://www.googleapis.com/auth/"
GCLOUD = """
bigquery                bigquery
cloud-platform          cloud-platform
cloud-source-repos      source.full_control
cloud-source-repos-ro   source.read_only
compute-ro              compute.readonly
compute-rw              compute
datastore               datastore
default                 devstorage.read_only logging.write monitoring.write pubsub
default                 service.management.readonly servicecontrol trace.append
gke-default             devstorage.read_only logging.write monitoring
gke-default             service.management.readonly servicecontrol trace.append
logging-write           logging.write
monitoring              monitoring
monitoring-read         monitoring.read
monitoring-write        monitoring.write
pubsub                  pubsub
service-control         servicecontrol
service-management      service.management.readonly
sql                     sqlservice
sql-admin               sqlservice.admin
storage-full            devstorage.full_control
storage-ro              devstorage.read_only
storage-rw              devstorage.read_write
taskqueue               taskqueue
trace                   trace.append
userinfo-email          userinfo.email
"""


def test_the_names_of_gcloud_are_its_scopes() -> None:
    expected: dict[str, list[str]] = {}
    for name, *ends in map(str.split, GCLOUD.strip().splitlines()):
        expected.setdefault(name, []).extend(SCOPE_PREFIX + end for end in ends)
    assert {name: [*scope_urls([name])] for name in expected} == expected


@pytest.mark.parametrize("url", [f"{SCOPE_PREFIX}a", f"{SCOPE_PREFIX}a.b-c/d_e", "https://mail.google.com/"])
def test_a_url_stays_as_it_is(url: str) -> None:
    assert scope_urls([url]) == (url,)


@pytest.mark.parametrize(
    "scope",
    [
        SCOPE_PREFIX,
        f"{SCOPE_PREFIX}ä",
        f"{SCOPE_PREFIX}a b",
        f"{SCOPE_PREFIX}a\n",
        "http://www.googleapis.com/auth/a",
        "https://mail.google.com",
    ],
)
def test_what_is_like_a_url_of_google_is_refused(scope: str) -> None:
    with pytest.raises(UsageError) as refused:
        scope_urls([scope])
    assert refused.value.message == f"'{scope}' is no OAuth scope."
    assert refused.value.facts == {"scope": scope}


def test_a_misspelt_name_has_the_nearest_and_another_has_all() -> None:
    with pytest.raises(UsageError) as refused:
        scope_urls(["storage-row"])
    assert refused.value.hint == "Did you mean storage-rw?"
    with pytest.raises(UsageError) as refused:
        scope_urls(["xyzzy"])
    assert refused.value.hint.startswith(
        f"Give {SCOPE_PREFIX}NAME or bigquery, cloud-platform, cloud-source-repos, "
    )


NODE_ID = NodeId("cloud-tpu", "p", "us-east1-d", "n1", "7")
NAME = "projects/p/locations/us-east1-d/nodes/n1"


def test_a_name_is_rendered_and_parsed() -> None:
    assert node_name(NODE_ID) == NAME
    assert parse_node_name(NAME, "7") == NODE_ID


@pytest.mark.parametrize("name", ["", "n1", "projects/p/zones/z/nodes/n1", f"{NAME}/x", f"/{NAME}"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a node"):
        parse_node_name(name, "7")


@pytest.mark.parametrize("name", [location("p", "us-east1-d"), "us-east1-d"])
def test_a_location_has_a_zone(name: str) -> None:
    assert zone_of(name) == "us-east1-d"
