"""What an option of a command says can be said in Python, too.

Misspelt options and texts for lists are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

import tpuctl
from tpuctl import Client, NodeOptions, SubmitOptions, UploadOptions
from tpuctl.cli.datasets.upload import upload
from tpuctl.cli.nodes.up import up
from tpuctl.cli.runs.submit import submit
from tpuctl.client.datasets.client import _request
from tpuctl.client.datasets.requests import upload_request
from tpuctl.client.nodes import creation
from tpuctl.client.runs.requests import submit_request
from tpuctl.data.options import Options, TokenOptions
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest
from tpuctl.flows.nodes.options import UpOptions

OF_THE_CLIENT = {"target", "project", "bucket", "zone", "iap", "host_keys", "cross_region"}
"""Options that arguments of the client are."""
OF_THE_COMMAND = {"as_json", "debug", "dry_run", "yes"}
"""Options that say how a command asks and shows."""
RENAMED = {
    up: {"accelerator": "", "boot_disk": "", "flex_start": ""},
    submit: {
        "script": "", "arguments": "", "is_attached": "", "tpu": "node", "env_files": "", "policy": "busy",
        "module": "kind", "stored": "store_environment",
    },
    upload: {
        "name": "", "source": "", "kind": "format", "runner": "", "beam_options": "",
    },
}  # fmt: skip
"""Parameters with another name in Python, or empty for those that are arguments there, or have no use."""


@pytest.mark.parametrize(
    ("command", "options"), [(up, NodeOptions), (submit, SubmitOptions), (upload, UploadOptions)]
)
def test_every_option_of_a_command_is_one_in_python(command: click.Command, options: type) -> None:
    names = {str(param.name) for param in command.params} - OF_THE_CLIENT - OF_THE_COMMAND
    renamed = RENAMED[command]
    expected = {renamed.get(name, name) for name in names} - {""}
    assert set(options.__annotations__) == expected


class Asked(dict[str, Any]):
    """Options of which none is given; it notes those that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


CALLS: dict[type, Callable[[Client, Any], object]] = {
    SubmitOptions: lambda client, options: submit_request(client._context, Path("a.py"), (), options),
    UploadOptions: lambda client, options: _request("pets", "pets", options),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_options_that_are_asked_for_are_those_that_there_are(client: Client, kind: type) -> None:
    options = Asked()
    CALLS[kind](client, options)
    passed_on = inspect.signature(upload_request).parameters.keys() if kind is UploadOptions else set()
    there_are = kind.__annotations__.keys()
    assert options.names | (passed_on & there_are) == there_are - {"keep"}  # which `upload` itself takes


def test_every_option_of_a_tpu_is_kept_or_used_by_the_search() -> None:
    assert NodeOptions.__annotations__.keys() - UpOptions.__struct_fields__ == creation.OF_THE_SEARCH


ZONE = "projects/sim-project/locations/europe-west4-a"
DISKS = f"{ZONE.replace('locations', 'zones')}/disks"


def test_every_option_of_a_tpu_reaches_the_request(client: Client) -> None:
    options: NodeOptions = {
        "name": "n1", "runtime": "tpu-ubuntu2204-base", "queued": True, "reservation": "r1",
        "valid_until": datetime(2199, 1, 1, tzinfo=UTC), "topology": "2x2", "labels": {"team": "vision"},
        "tags": ["tpu", "lab"], "network": "lab", "subnetwork": "sub", "internal_ips": True,
        "service_account": "tpu@p.iam.gserviceaccount.com", "scopes": ["storage-rw"],
        "data_disks": ["photos:ro", "scratch:rw", "rest"], "startup_script": "echo ready",
        "metadata": {"a": "b"}, "secure_boot": True,
    }  # fmt: skip
    (request,) = client.plan_up("v3-8", **options).requests
    body: Any = request.body
    (spec,) = body.pop("tpu")["nodeSpec"]
    node = spec.pop("node")
    assert body == {
        "queueingPolicy": {"validUntilTime": "2199-01-01T00:00:00Z"},
        "reservationName": f"{ZONE}/reservations/r1",
    }
    assert spec == {"parent": ZONE, "nodeId": "n1"}
    assert node.pop("labels")["team"] == "vision"
    assert node["metadata"].items() >= {"a": "b", "startup-script": "echo ready"}.items()
    del node["metadata"]
    assert node == {
        "acceleratorConfig": {"type": "V3", "topology": "2x2"},
        "runtimeVersion": "tpu-ubuntu2204-base",
        "networkConfig": {"network": "lab", "subnetwork": "sub"},
        "serviceAccount": {
            "email": "tpu@p.iam.gserviceaccount.com",
            "scope": ["https://www.googleapis.com/auth/devstorage.read_write"],
        },
        "tags": ["tpu", "lab"],
        "dataDisks": [
            {"sourceDisk": f"{DISKS}/photos", "mode": "READ_ONLY"},
            {"sourceDisk": f"{DISKS}/scratch", "mode": "READ_WRITE"},
            {"sourceDisk": f"{DISKS}/rest", "mode": "READ_WRITE"},
        ],
        "shieldedInstanceConfig": {"enableSecureBoot": True},
    }


@pytest.mark.parametrize("scheduling", [{}, {"spot": True}, {"reserved": True}], ids=" ".join)
def test_without_options_a_tpu_is_a_plain_one(client: Client, scheduling: NodeOptions) -> None:
    (request,) = client.plan_up("v3-8", **scheduling).requests
    body: Any = request.body
    del body["labels"], body["metadata"]
    assert body == {
        "acceleratorType": "v3-8",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "schedulingConfig": scheduling,
        "networkConfig": {"network": "default", "enableExternalIps": True},
    }


TOKENS = TokenOptions("words", 128, 10_000)
UPLOADS: list[tuple[UploadOptions, dict[str, object]]] = [
    ({"version": "2.0.0"}, {"ref": DatasetRef("pets", "2.0.0")}),
    ({"splits": {"train": 0.75, "test": 0.25}}, {"splits": "train=0.75,test=0.25"}),
    ({"accelerator": "v3-32"}, {"hosts": 4}),
    ({"hosts": 3}, {"hosts": 3}),
    ({"shards": 7}, {"shards": 7}),
    ({"shard_size": 1000}, {"shard_size": 1000}),
    ({"seed": 5}, {"seed": 5}),
    ({"resize": (8, 6)}, {"options": Options(resize=(8, 6))}),
    ({"channels": 1}, {"options": Options(channels=1)}),
    ({"label": "kind"}, {"options": Options(label="kind")}),
    ({"types": {"age": "float"}}, {"options": Options(types={"age": "float"})}),
    ({"tokens": "words"}, {"options": Options(tokens=TOKENS)}),
    (
        {"tokens": "wordpiece", "vocabulary": 500, "length": 9, "text": "review"},
        {"options": Options(tokens=TokenOptions("wordpiece", 9, 500, "review"))},
    ),
    (
        {"tokens": "words", "vocabulary": ["[PAD]", "cat"]},
        {"options": Options(tokens=TokenOptions("words", 128)), "vocabulary": ("[PAD]", "cat")},
    ),
    ({"format": "csv"}, {"kind": "csv"}),
    ({"skip_bad": True}, {"skip_bad": True}),
]
"""Options of an upload, and what each changes in the request."""


@pytest.mark.parametrize(("options", "changed"), UPLOADS, ids=lambda value: "-".join(value))
def test_an_option_of_an_upload_changes_what_it_says(
    options: UploadOptions, changed: dict[str, object]
) -> None:
    usual = UploadRequest(source="pets", ref=DatasetRef("pets", "1.0.0"))
    assert _request("pets", "pets", {}) == usual
    assert _request("pets", "pets", options) == msgspec.structs.replace(usual, **changed)


Call = Callable[[Any], object]


@pytest.fixture
def closed(home: Path) -> Any:
    """A client that can ask nobody: what is wrong is refused before anything is sent."""
    client = tpuctl.Client(target="sim")
    client.close()
    return client


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda client: client.up("v3-8", spott=True), "There is no option 'spott'"),
        (lambda client: client.plan_up("v3-8", tll=60), "There is no option 'tll'"),
        (lambda client: client.submit("train.py", nmae="r1"), "There is no option 'nmae'"),
        (lambda client: client.upload("d", "rows.csv", vresion="1.0.0"), "There is no option 'vresion'"),
        (lambda client: client.submit("train.py", "--epochs 3"), "arguments is a list"),
        (lambda client: client.submit("train.py", ["--epochs", 3]), "arguments has 3, which is no text"),
        (lambda client: client.submit("train.py", include="more.py"), "include is a list"),
        (
            lambda client: client.submit("train.py", environment={"A": 1}),
            "the value of A is no text, but of type int",
        ),
        (lambda client: client.submit("train.py", secrets={"A": 1}), "secrets: the value of A is no text"),
        (lambda client: client.submit("train.py", busy="wait"), "'wait' is none of the values of busy"),
        (lambda client: client.submit("train.py", max_price=12.5), "max_price is a text"),
        (lambda client: client.up("v3-8", framework="torch"), "'torch' is none of the values of framework"),
        (lambda client: client.up("v3-8", zones="us-central1-a"), "zones is a list"),
        (lambda client: client.up("v3-8", ttl="2h"), "'2h' is no span of time"),
        (lambda client: client.up("v3-8", ttl=0), "--ttl 0s leaves no time"),
        (lambda client: client.up("v3-8", ttl=-60), "-60 is not from 0 seconds to a century"),
        (lambda client: client.up("v3-8", idle=float("inf")), "inf is not from 0 seconds"),
        (lambda client: client.up("v3-8", ttl=float("nan")), "nan is no span of time"),
        (lambda client: client.up("v3-8", max_cost=0), "--max-cost 0 pays for nothing"),
        (lambda client: client.up("v3-8", max_cost=-1), "max_cost is -1, and no amount"),
        (lambda client: client.up("v3-8", max_cost=float("inf")), "max_cost is inf, and no amount"),
        (lambda client: client.up("v3-8", max_cost="five"), "max_cost is 'five', and no amount"),
        (lambda client: client.cost(since=1e18), "is not from 0 seconds to a century"),
        (lambda client: client.runs(since=-1), "-1 is not from 0 seconds"),
        (lambda client: client.up("v3-8", slices=0), "slices is 0, and at least 1 is needed"),
        (lambda client: client.runs(limit=-1), "limit is -1"),
        (lambda client: client.runs(states="failed"), "states is a list"),
        (lambda client: client.runs(states=["fialed"]), "'fialed' is none of the values of states"),
        (lambda client: client.runs(datasets="digits"), "datasets is a list"),
        (lambda client: client.runs(tags="keep"), "tags is a list"),
        (lambda client: client.cost(by="users"), "'users' is none of the values of by"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(closed: Any, call: Call, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        call(closed)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda run: run.pull("out", only="logs"), "only is a list"),
        (lambda run: run.pull("out", only=["log"]), "'log' is none of the values of only"),
        (lambda run: run.resubmit("--lr 0.1"), "changes is a list"),
        (lambda run: run.resubmit(["--lr", 0.1]), "changes has 0.1, which is no text"),
        (lambda run: run.resubmit(environment={"A": 1}), "the value of A is no text"),
        (lambda run: run.logs(tail=-1), "tail is -1"),
        (lambda run: run.wait(timeout="1m"), "'1m' is no span of time"),
    ],
)
def test_a_handle_refuses_it_too(closed: Any, call: Call, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        call(tpuctl.Run(closed._context, "r1"))


def test_the_hint_names_the_nearest_option(closed: Any) -> None:
    with pytest.raises(UsageError) as caught:
        closed.up("v3-8", spott=True)
    assert caught.value.hint == "Did you mean spot?"
