"""Who calls: programs on a host are its service account, also if they hide; others are the user.

Whose roles `sim start --iam` enforces: those of Terraform's state, and the owner of its projects.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import requests

from tests.running_simulator import RunningSimulator
from tests.sim.iam.attacks import STANDARD_LIBRARY
from tests.sim.iam.rehearsal import MINIMAL, PROJECT, Start, Tpuctl, job
from tpuctl.errors import UsageError
from tpuctl.sim.hosts import connections
from tpuctl.sim.iam.enforcement import Binding, enforcement

EMPTIED = """
import subprocess, sys
code = '''
import urllib.error, urllib.request
address = "HOST/upload/storage/v1/b/DATA/o?uploadType=media&name=x"
request = urllib.request.Request(address, b"{}", method="POST")
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
'''
code = code.replace("HOST", os.environ["STORAGE_EMULATOR_HOST"]).replace("DATA", os.environ["DATA"])
subprocess.run([sys.executable, "-c", code], env={}, check=True)
subprocess.run([sys.executable, "-c", code], env={}, check=True, start_new_session=True)
"""
CLOSED = """
import socket
host, port = os.environ["STORAGE_EMULATOR_HOST"].removeprefix("http://").split(":")
head = "POST /upload/storage/v1/b/DATA/o?uploadType=media&name=closed HTTP/1.1\\r\\nHost: localhost\\r\\n"
head = head.replace("DATA", os.environ["DATA"]) + "Content-Length: 2\\r\\n\\r\\n{}"
for _ in range(50):
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode())
print("sent")
"""
APIS = """
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import tpu_v2
node = "projects/%s/locations/europe-west4-a/nodes/" % os.environ["GOOGLE_CLOUD_PROJECT"]
client = tpu_v2.TpuClient()
print("get", client.get_node(name=node + os.environ["NODE"]).state.name)
try:
    client.stop_node(tpu_v2.StopNodeRequest(name=node + os.environ["NODE"]))
    print("stopped")
except GoogleAPICallError as error:
    print("stop", error.message)
"""


def lines(tpuctl: Tpuctl, body: str, *dependencies: str, **variables: str) -> list[str]:
    """Run a job on a new node and return the lines of its log."""
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    settings = [text for name, value in variables.items() for text in ("--env", f"{name}={value}")]
    assert tpuctl("submit", job("import os\n" + body, "job.py", *dependencies), *settings).code == 0
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.out + followed.err
    return str(followed.out).splitlines()


def test_a_program_that_empties_its_environment_is_still_the_hosts(rehearse: Start, tpuctl: Tpuctl) -> None:
    rehearse()
    shown = lines(tpuctl, EMPTIED, DATA=MINIMAL.data)
    assert len(shown) == 2
    for line in shown:
        assert line.startswith("403 "), line
        assert f"{MINIMAL.account} does not have storage.objects.create access" in line


def test_a_connection_that_is_closed_at_once_is_nobodys(rehearse: Start, tpuctl: Tpuctl) -> None:
    simulator = rehearse()
    assert lines(tpuctl, CLOSED, DATA=MINIMAL.data) == ["sent"]
    assert simulator.gcs.store.objects.find(MINIMAL.data, "closed") is None


def test_the_cloud_tpu_api_knows_the_hosts_account(rehearse: Start, tpuctl: Tpuctl) -> None:
    rehearse()
    assert lines(tpuctl, APIS, "google-cloud-tpu", NODE="n1")[-2:] == [
        "get READY",
        f"stop Permission 'tpu.nodes.stop' denied on 'projects/{PROJECT}/locations/europe-west4-a/nodes/n1' "
        "(or it may not exist).",
    ]


def test_without_proc_the_token_tells(
    rehearse: Start, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(connections, "TABLES", (str(tmp_path / "none"),))
    rehearse()
    tokens = STANDARD_LIBRARY + "send('add', 'POST', upload(os.environ['DATA'], 'x'), b'{}')\n"
    with_token, without = lines(tpuctl, tokens, DATA=MINIMAL.data)
    assert with_token.startswith("add 403 ")
    assert MINIMAL.account in with_token
    assert without == "add 200", "docs/simulator.md says that only the token tells there"


def storage(simulator: RunningSimulator) -> str:
    return f"{simulator.simulator.endpoints['storage']}/storage/v1/b"


def test_permissions_can_be_tested(rehearse: Start) -> None:
    simulator = rehearse()
    names = ["storage.objects.create", "storage.objects.setIamPolicy", "storage.buckets.get"]
    address = f"{storage(simulator)}/{MINIMAL.runs}/iam/testPermissions"
    tested = requests.get(address, params={"permissions": names}, timeout=60).json()
    assert tested["permissions"] == ["storage.objects.create", "storage.buckets.get"]


def test_a_changed_policy_counts_at_once_and_members_may_not_change_it(rehearse: Start) -> None:
    simulator = rehearse(user="user:owner@example.com")
    address = f"{storage(simulator)}/{MINIMAL.runs}/iam"
    policy = requests.get(address, timeout=60).json()
    assert any("condition" in binding for binding in policy["bindings"])
    bad = {**policy, "bindings": [{"role": "roles/storage.wizard", "members": ["user:a@example.com"]}]}
    assert requests.put(address, json=bad, timeout=60).status_code == 400
    policy["bindings"] = [
        binding for binding in policy["bindings"] if "projectOwner" not in json.dumps(binding)
    ]
    assert requests.put(address, json=policy, timeout=60).status_code == 200
    refused = requests.get(address, timeout=60)
    assert refused.status_code == 403
    assert refused.json()["error"]["message"] == (
        "owner@example.com does not have storage.buckets.getIamPolicy access to the Google Cloud Storage "
        "bucket. Permission 'storage.buckets.getIamPolicy' denied on resource (or it may not exist)."
    )


def test_a_member_may_not_change_policies_and_buckets(rehearse: Start) -> None:
    simulator = rehearse()
    bucket, options = f"{storage(simulator)}/{MINIMAL.runs}", {"timeout": 10}
    public = {"entity": "allUsers", "role": "OWNER"}
    assert requests.put(f"{bucket}/iam", json={"bindings": []}, **options).status_code == 403
    assert requests.patch(bucket, json={"versioning": {"enabled": True}}, **options).status_code == 403
    assert requests.post(f"{bucket}/acl", json=public, **options).status_code == 403
    assert requests.delete(bucket, **options).status_code == 403
    created = requests.post(f"{storage(simulator)}?project={PROJECT}", json={"name": "new-one"}, **options)
    assert created.status_code == 403
    assert "storage.buckets.create access to the Google Cloud project" in created.json()["error"]["message"]
    assert requests.get(f"{storage(simulator)}/none/o", **options).status_code == 404


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")
def test_gcloud_shows_googles_403(rehearse: Start, tmp_path: Path) -> None:
    simulator = rehearse(user="user:eve@example.com")
    environment = {**os.environ, **simulator.simulator.endpoints["environment"]}
    for command in (("storage", "ls", f"gs://{MINIMAL.runs}"), ("compute", "tpus", "tpu-vm", "list")):
        process = subprocess.run(
            ["gcloud", *command, f"--project={PROJECT}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == 1, process.stdout
        assert "ermission 'tpu.nodes.list' denied" in process.stderr or (
            "eve@example.com does not have storage." in process.stderr
        ), process.stderr


OWNER = "user:owner@example.com"
ADA = "user:ada@example.com"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A state with a bucket of one project and a role in another."""
    values = {
        "google_storage_bucket": {"name": "b", "project": "of-bucket"},
        "google_project_iam_member": {"project": "of-role", "role": "roles/tpu.viewer", "member": ADA},
    }
    resources = [{"mode": "managed", "type": kind, "values": value} for kind, value in values.items()]
    path = tmp_path / "iam.json"
    path.write_text(json.dumps({"values": {"root_module": {"resources": resources}}}))
    return path


def test_an_owner_has_every_project(file: Path) -> None:
    policies = enforcement(file, None).policies(["given"])
    own = Binding("roles/owner", (OWNER,))
    assert policies.projects == {
        "given": [own],
        "of-bucket": [own],
        "of-role": [Binding("roles/tpu.viewer", (ADA,)), own],
    }
    assert enforcement(None, None).policies(["given"]).projects == {"given": [own]}


@pytest.mark.parametrize(
    "user", [ADA, "group:team@example.com", "serviceAccount:job@p.iam.gserviceaccount.com"]
)
def test_a_shell_is_of_the_user_that_is_named(user: str) -> None:
    assert (enforcement(None, user).user, enforcement(None, None).user) == (user, OWNER)


@pytest.mark.parametrize(
    "user",
    ["", "ada@example.com", "user:ada", "user:", "domain:example.com", "user:a@b@c", "user:a b@c",
     "allUsers", "xuser:a@b", "user:a@b:c"],
)  # fmt: skip
def test_a_name_that_is_no_account_is_refused(user: str) -> None:
    with pytest.raises(UsageError) as raised:
        enforcement(None, user)
    assert raised.value.message == f"'{user}' names no account."
    assert raised.value.hint == "Write user:E-MAIL, group:E-MAIL or serviceAccount:E-MAIL."
