"""Names in requests, and addresses of hosts: unique, on loopback, none a network's own or broadcast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpuctl.sim.world.api_errors import ApiError
from tpuctl.sim.world.resources import (
    address,
    addresses_before,
    id_of,
    list_prefix,
    new_operation,
    require_collection,
    require_identifier,
)

HOSTS_OF_A_NETWORK = 254
NETWORKS = 64 * 256


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, "127.77.0.1"),
        (HOSTS_OF_A_NETWORK, "127.77.0.254"),
        (HOSTS_OF_A_NETWORK + 1, "127.77.1.1"),
        (256 * HOSTS_OF_A_NETWORK + 1, "127.78.0.1"),
        ((128 - 77) * 256 * HOSTS_OF_A_NETWORK, "127.127.255.254"),
        ((128 - 77) * 256 * HOSTS_OF_A_NETWORK + 1, "127.64.0.1"),
        (NETWORKS * HOSTS_OF_A_NETWORK + 1, "127.77.0.1"),
    ],
)
def test_addresses_run_through_the_network_and_begin_again(number: int, expected: str) -> None:
    assert address(number) == expected


def test_the_hosts_of_each_folder_begin_in_another_network() -> None:
    """Of a thousand folders, chance alone has some thirty share a network of another one."""
    before = [addresses_before(Path(f"/home/user-{number}/.tpuctl/sim")) for number in range(1000)]
    assert before[:2] == [2_515_870, 4_109_720], "the same in every process"
    assert all(address(number + 1).endswith(".1") for number in before), "each begins a network"
    assert max(before) < NETWORKS * HOSTS_OF_A_NETWORK
    assert len(set(before)) > 900


@pytest.mark.parametrize(
    ("identifier", "valid"),
    [
        ("a", True), ("a1", True), ("a-b_c", True), ("a" * 63, True), ("a" * 64, False), ("", False),
        ("A", False), ("1a", False), ("-a", False), ("_a", False), ("a-", False), ("a_", False),
        ("a.b", False), ("a\n", False), ("aB", False),
    ],
)  # fmt: skip
def test_identifiers_of_new_resources(identifier: str, valid: bool) -> None:
    if valid:
        require_identifier(identifier)
        return
    with pytest.raises(ApiError) as raised:
        require_identifier(identifier)
    assert raised.value.status.message.startswith(f"Invalid node ID '{identifier}'")
    with pytest.raises(ApiError, match="Invalid queued resource ID"):
        require_identifier(identifier, "queued resource")


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("projects/p/locations/z/nodes/n", True),
        ("projects/p/locations/z/nodes/", False),
        ("projects/p/locations/z/nodes/n/x", False),
        ("projects/p/locations/z/queuedResources/n", False),
        ("projects//locations/z/nodes/n", False),
        ("projects/p/locations/z/nodes", False),
        ("x/projects/p/locations/z/nodes/n", False),
        ("n", False),
    ],
)
def test_full_names_are_of_their_collection(name: str, valid: bool) -> None:
    if valid:
        require_collection(name, "nodes")
        return
    with pytest.raises(ApiError) as raised:
        require_collection(name, "nodes")
    assert raised.value.status.message == f"Invalid resource field value in the request: '{name}'."


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "projects/p",
        "projects/p/locations/",
        "projects/p/locations/z/nodes",
        "p/locations/z",
        "projects//locations/z",
    ],
)
def test_other_parents_have_no_lists(parent: str) -> None:
    with pytest.raises(ApiError, match="Invalid resource field value"):
        list_prefix(parent)


def test_the_id_is_the_last_part_of_a_name() -> None:
    assert (id_of("projects/p/locations/z/nodes/n"), id_of("n"), id_of("a/")) == ("n", "n", "")


def test_a_new_operation_has_googles_form() -> None:
    name = new_operation("projects/p/locations/z", 1_769_860_800.1239)
    form = r"projects/p/locations/z/operations/operation-1769860800123-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}"
    assert re.fullmatch(form, name)
    assert new_operation("projects/p/locations/z", 1_769_860_800.1239) != name
