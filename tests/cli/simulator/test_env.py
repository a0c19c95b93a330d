"""`eval "$(tpuctl sim env)"` in a real shell: real clients that are given nothing else meet the simulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator

TPUCTL = Path(sys.executable).parent / "tpuctl"
ENTER = f'eval "$({TPUCTL} sim env)"\n'

PYTHON = """
import gcsfs, tensorstore
from google.cloud import storage, tpu_v2
bucket = "sim-project-tpuctl"
parent = "projects/sim-project/locations/europe-west4-a"
node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
with tpu_v2.TpuClient() as client:
    client.create_node(parent=parent, node_id="one", node=node).result(timeout=60)
with tpu_v2.TpuClient(transport="rest") as client:
    print("tpu", [node.state.name for node in client.list_nodes(parent=parent)])
storage.Client().bucket(bucket).blob("from/storage").upload_from_string("1")
files = gcsfs.GCSFileSystem()
files.pipe(f"{bucket}/from/gcsfs", b"2")
print("gcsfs", files.cat(f"{bucket}/from/storage"))
store = tensorstore.KvStore.open({"driver": "gcs", "bucket": bucket, "path": "from/"}).result()
store.write("tensorstore", b"3").result()
print("tensorstore", store.read("gcsfs").result().value)
print("all", [blob.name for blob in storage.Client().list_blobs(bucket)])
"""
SIGNED = """
import requests
import google.auth, google.auth.transport.requests
from google.cloud import storage
from google.oauth2 import id_token
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
request = google.auth.transport.requests.Request()
credentials.refresh(request)
print(project, credentials.service_account_email.partition("-")[2], credentials.token.startswith("ya29."))
print(id_token.fetch_id_token(request, "https://service.example").count("."))
blob = storage.Client(credentials=credentials).bucket("sim-project-tpuctl").blob("signed")
blob.upload_from_string("by its key")
print(requests.get(blob.generate_signed_url(60, version="v4"), timeout=10).text)
forged = credentials._make_authorization_grant_assertion().decode().rpartition(".")[0] + ".AAAA"
grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
for form in ({"grant_type": grant, "assertion": forged}, {"grant_type": "refresh_token"}):
    answer = requests.post(credentials._token_uri, data=form, timeout=10)
    print(answer.status_code, answer.json()["error"])
"""
GFILE = """
import tensorflow as tf
with tf.io.gfile.GFile("gs://sim-project-tpuctl/from/tensorflow", "w") as file:
    file.write("4")
print("gfile", tf.io.gfile.listdir("gs://sim-project-tpuctl/from"))
"""


@pytest.fixture
def shell(home: Path, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch):
    """Runs a script in a new shell of a user who has a proxy and credentials of his own."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    monkeypatch.setenv("SHELL", "/bin/sh")

    def run(script: str, *arguments: str) -> list[str]:
        result = subprocess.run(
            ["sh", "-eu", "-c", script, "sh", *arguments], capture_output=True, text=True, timeout=250
        )
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout.splitlines()

    return run


def test_googles_python_clients_gcsfs_and_tensorstore(shell) -> None:
    assert shell(f'{ENTER} exec {sys.executable} -c "$1"', PYTHON) == [
        "tpu ['READY']",
        "gcsfs b'1'",
        "tensorstore b'2'",
        "all ['from/gcsfs', 'from/storage', 'from/tensorstore']",
    ]


def test_credentials_that_sign_and_are_exchanged(shell) -> None:
    assert shell(f'{ENTER} exec {sys.executable} -W error -c "$1"', SIGNED) == [
        "sim-project compute@developer.gserviceaccount.com True",
        "2",
        "by its key",
        "400 invalid_grant",
        "400 unsupported_grant_type",
    ]


@pytest.mark.slow
def test_tensorflow(shell) -> None:
    assert shell(f'{ENTER} exec {sys.executable} -c "$1"', GFILE) == ["gfile ['tensorflow']"]


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")
def test_gcloud(shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    create = "gcloud compute tpus tpu-vm create two --accelerator-type=v3-8 --version=tpu-ubuntu2204-base"
    listed = "gcloud compute tpus tpu-vm list --format='value(name,state)'"
    copied = f"gcloud storage cp {tmp_path}/file gs://sim-project-tpuctl/f && gcloud storage cat gs://sim-project-tpuctl/f"
    assert shell(f"{ENTER} {create} -q; {listed}; {copied}") == ["two\tREADY", "hello"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gsutil"), reason="gsutil is not on the PATH")
def test_gsutil(shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    script = f"gsutil -q cp {tmp_path}/file gs://sim-project-tpuctl/g; gsutil cat gs://sim-project-tpuctl/g"
    assert shell(ENTER + script) == ["hello"]


def test_tpuctl_itself(shell) -> None:
    (line,) = shell(f"{ENTER} {TPUCTL} config show | grep target")
    assert line.split() == ["target", "sim", "TPUCTL_TARGET"]


def test_leaving_gives_back_what_there_was(shell) -> None:
    show = 'echo "$https_proxy" "$GOOGLE_APPLICATION_CREDENTIALS" "${BOTO_CONFIG-none}"\n'
    script = f'{ENTER}{ENTER}echo "$BOTO_CONFIG"\neval "$({TPUCTL} sim env --unset)"\n{show}'
    entered, restored = shell(script)
    assert entered.endswith("/workstation/boto")
    assert restored == "http://127.0.0.1:9 /nowhere.json none"


def test_there_is_nothing_to_leave(home: Path, tpuctl) -> None:
    result = tpuctl("sim", "env", "--unset")
    assert (result.code, result.out) == (4, "")
    assert "This shell's clients were not pointed to the simulator." in result.err


def test_other_shells_and_programs(simulator: RunningSimulator, tpuctl) -> None:
    lines = tpuctl("sim", "env", "--shell", "fish").out.splitlines()
    assert f"set -gx CLOUDSDK_CONFIG {simulator.folder}/workstation/gcloud;".replace(
        "CONFIG ", "CONFIG '"
    ) in [line.replace("';", ";") for line in lines]
    assert lines[-1] == "# To apply it to this shell: tpuctl sim env --shell fish | source"
    assert tpuctl("sim", "env", "--shell", "posix").out.endswith('eval "$(tpuctl sim env --shell posix)"\n')
    output = tpuctl("sim", "env", "--json").json
    assert output["environment"] == {**simulator.simulator.endpoints["environment"], "TPUCTL_TARGET": "sim"}


def test_what_it_names_is_for_its_user_alone(simulator: RunningSimulator) -> None:
    named = simulator.simulator.endpoints["environment"]
    for variable in ("GOOGLE_APPLICATION_CREDENTIALS", "BOTO_CONFIG"):
        assert os.stat(named[variable]).st_mode & 0o077 == 0
