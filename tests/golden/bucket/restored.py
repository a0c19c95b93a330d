"""Restores the golden bucket and its TPUs on a fresh simulator, at the time of the recording.

Both go through the services' own doors: each object is uploaded and each TPU is asked for at its own time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.golden.bucket.shown_time import ShownTime
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

COMMIT = "0de294d4"
"""The version that wrote the recording."""
FOLDER = Path(__file__).parent
FILE = FOLDER / "bucket.json"
PROGRAM, SPEC = FOLDER / "worker.zip", FOLDER / "spec.json"
"""What a laptop of that version sent to the host of the run `running`."""
LAPTOP = "laptop"
"""The name of the machine that the commands run on."""
ENVIRONMENT = {
    "LOGNAME": "ada", "USER": "ada", "TPUCTL_OWNER": "ada@example.com", "TPUCTL_SSH_USER": "ada",
}  # fmt: skip
"""Who runs the commands."""
MINUTE = timedelta(minutes=1)
Item = Mapping[str, Any]


class Recording:
    """What is on record: the objects, and how each TPU was asked for."""

    def __init__(self) -> None:
        content = json.loads(FILE.read_text())
        self.at = datetime.fromisoformat(content["at"])
        self.tpus: list[Item] = content["tpus"]
        self.objects: list[Item] = content["objects"]
        self._contents: Mapping[str, Mapping[str, str]] = content["contents"]

    def upload(self, item: Item, bucket: storage.Bucket, renamed: Callable[[str], str]) -> None:
        """Upload one object, with names of TPUs changed."""
        content = self._contents[item["content"]]
        data = renamed(content["text"]).encode() if "text" in content else base64.b64decode(content["base64"])
        bucket.blob(renamed(item["name"])).upload_from_string(data, content_type=item["type"])

    def upload_submission(self, run: str, bucket: storage.Bucket, uid: str) -> None:
        """Upload what the submission of a run wrote, as if to the TPU with a uid."""
        own = {f"runs/{run}/run.json", f"runs/{run}/attempts/1/attempt.json"}
        names = [item["name"] for item in self.objects]
        (node,) = (name for name in names if name.endswith(f"/runs/{run}/1.json"))
        recorded = node.split("/")[1].rpartition(".")[2]
        for item in self.objects:
            if item["name"] in own | {node} or item["name"].startswith("bundles/"):
                self.upload(item, bucket, lambda text: text.replace(recorded, uid))


def bucket_of(sim: Simulator) -> storage.Bucket:
    """Return the bucket of a simulator, by Google's own client."""
    endpoints = sim.endpoints
    options = {"api_endpoint": endpoints.storage}
    return storage.Client(endpoints.project, AnonymousCredentials(), client_options=options).bucket(
        endpoints.bucket
    )


class Restored:
    """A simulator with the bucket and the TPUs of the recording."""

    def __init__(self, sim: Simulator, time: ShownTime, home: Path) -> None:
        self._sim, self._time = sim, time
        self._key = make_key(home)
        self._uids: dict[str, str] = {}
        """The recorded uid of each TPU -> that of the one that stands for it."""
        self._bucket = bucket_of(sim)
        recording = Recording()
        nodes, queued = ([tpu for tpu in recording.tpus if kind in tpu] for kind in ("node", "queued"))
        for each in sorted([*nodes, *recording.objects], key=_time_of):
            time.stand_at(_time_of(each))
            if "content" in each:
                recording.upload(each, self._bucket, self._as_restored)
            else:
                self._create(each)
        time.stand_at(recording.at)
        for each in queued:  # now: the queue would try again as often as time has passed
            self._queue(each)
        self.before = self.objects()

    def objects(self) -> dict[str, int]:
        """Return the generation of each object."""
        return {blob.name: blob.generation for blob in self._bucket.list_blobs()}

    def _create(self, tpu: Item) -> None:
        """Ask for one TPU as the recorded one was asked for, and bring it into its state."""
        self._take_key(tpu["node"])
        self._post(_parent(tpu), tpu["node"], nodeId=_name(tpu))
        node = self._sim.world.wait_for(tpu["name"], "READY")
        self._uids[tpu["uid"]] = str(node.uid)
        self._time.stand_at(_time_of(tpu) + MINUTE)  # of two operations at once none is the first
        if tpu["state"] == "PREEMPTED":
            self._sim.world.preempt(tpu["name"], grace=0.0)
        elif tpu["state"] == "STOPPED":
            self._post(f"{tpu['name']}:stop", {})
        self._sim.world.wait_for(tpu["name"], tpu["state"])

    def _queue(self, tpu: Item) -> None:
        """Ask for TPUs as the recorded request did; there are none of this type."""
        for spec in tpu["queued"]["tpu"]["nodeSpec"]:
            self._take_key(spec["node"])
            self._sim.faults.add("stockout", type=spec["node"]["acceleratorType"])
        self._post(_parent(tpu), tpu["queued"], queuedResourceId=_name(tpu))
        self._sim.wait_for_event(kind="fault", what="stockout")
        world = self._sim.world
        poll(
            lambda: world.queued_resource(tpu["name"]).state == "WAITING_FOR_RESOURCES" or None,
            awaiting="the queue's answer", timeout=60, backoff=Backoff(0.01, 0.2),
        )  # fmt: skip

    def _take_key(self, node: Item) -> None:
        """Let the laptop of this test in."""
        node["metadata"]["ssh-keys"] = f"ada:{self._key} ada"

    def _post(self, path: str, body: object, **query: str) -> None:
        address = f"{self._sim.endpoints.tpu_rest}/v2/{path}"
        requests.post(address, params=query, json=body, timeout=60).raise_for_status()

    def _as_restored(self, text: str) -> str:
        for recorded, present in self._uids.items():
            text = text.replace(recorded, present)
        return text

    def as_recorded(self, text: str) -> str:
        """Return a text with the uids of the recording."""
        for recorded, present in self._uids.items():
            text = text.replace(present, recorded)
        return text


def _parent(tpu: Item) -> str:
    return str(tpu["name"].rpartition("/")[0])


def _name(tpu: Item) -> str:
    return str(tpu["name"].rpartition("/")[2])


def _time_of(each: Item) -> datetime:
    return datetime.fromisoformat(each.get("updated") or each["created"])


def make_key(home: Path) -> str:
    """Make the SSH key that tpuctl shares with gcloud, and return its public half."""
    key = Ed25519PrivateKey.generate()
    file = home / ".ssh" / "google_compute_engine"
    file.parent.mkdir(mode=0o700)
    file.touch(0o600)
    openssh = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    file.write_bytes(key.private_bytes(*openssh))
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    public = key.public_key().public_bytes(*form).decode()
    file.with_suffix(".pub").write_text(f"{public} ada\n")
    return public
