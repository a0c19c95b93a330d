"""`eval "$(tpuctl sim env)"` in a real shell: real clients that are given nothing else meet the simulator.

`sim env` says what the clients in the user's shell lack.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import User

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
print(requests.get(blob.generate_signed_url(60, version="v4"), timeout=60).text)
forged = credentials._make_authorization_grant_assertion().decode().rpartition(".")[0] + ".AAAA"
grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
for form in ({"grant_type": grant, "assertion": forged}, {"grant_type": "refresh_token"}):
    answer = requests.post(credentials._token_uri, data=form, timeout=60)
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


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")
def test_gcloud(shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    create = "gcloud compute tpus tpu-vm create two --accelerator-type=v3-8 --version=tpu-ubuntu2204-base"
    listed = "gcloud compute tpus tpu-vm list --format='value(name,state)'"
    copied = f"gcloud storage cp {tmp_path}/file gs://sim-project-tpuctl/f && gcloud storage cat gs://sim-project-tpuctl/f"
    assert shell(f"{ENTER} {create} -q; {listed}; {copied}") == ["two\tREADY", "hello"]


def files_of_ssh() -> dict[str, float]:
    """What is in ~/.ssh, as OpenSSH understands it: that of the password file, not of $HOME."""
    folder = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    return {path.name: path.stat().st_mtime for path in folder.glob("*")}


OPENSSH = """
ssh -n $key ada@$ip 'echo $HOSTNAME'
echo hello >file
scp -q $key file ada@$ip:copy
ssh -n $key ada@$ip cat copy
echo 'get copy back' | sftp -q -b - $key ada@$ip >/dev/null
cat back
"""


@pytest.fixture
def login(simulator: RunningSimulator, tmp_path: Path) -> str:
    """Lines of a script that name a host's address and the options of a user with a key."""
    user = User(tmp_path)
    node = user.create(simulator.simulator.endpoints["tpu_grpc"])
    options = f"-i {user.key} -o IdentitiesOnly=yes -o BatchMode=yes"
    return f"ip={node.network_endpoints[0].ip_address}; key='{options}'\n"


@pytest.mark.skipif(not shutil.which("ssh"), reason="OpenSSH is not on the PATH")
def test_openssh_reaches_hosts_by_their_addresses_and_knows_their_keys(
    shell, login: str, simulator: RunningSimulator, home: Path
) -> None:
    before = files_of_ssh()
    (host,) = simulator.world.nodes.hosts()
    assert shell(ENTER + login + OPENSSH) == [host.hostname, "hello", "hello"]
    assert (files_of_ssh(), (home / ".ssh").exists()) == (before, False)


@pytest.mark.skipif(not shutil.which("ssh"), reason="OpenSSH is not on the PATH")
def test_openssh_refuses_another_key_and_an_address_where_nobody_is(
    shell, login: str, simulator: RunningSimulator
) -> None:
    simulator.break_hosts("wrong-host-key")
    run = "ssh -n $key ada@{} true 2>&1 || echo $?"
    assert "Host key verification failed." in shell(ENTER + login + run.format("$ip"))
    simulator.heal_hosts()
    lines = shell(ENTER + login + run.format("127.64.9.9"))
    assert {"No simulated host answers at 127.64.9.9.", "255"} <= set(lines), lines


@pytest.mark.skipif(not shutil.which("ssh"), reason="OpenSSH is not on the PATH")
def test_openssh_treats_other_hosts_as_before(shell, tmp_path: Path) -> None:
    """By the same configuration: all that `-G` prints, but where it lies."""
    own, simulated = shell(f"ssh -G git.example; echo ---; {ENTER} ssh -G git.example"), []
    cut = own.index("---")
    own, simulated = own[:cut], own[cut + 1 :]
    assert simulated == own
    (tmp_path / "theirs").write_text("Host *\n  Port 4711\n")
    assert "port 4711" in shell(f"{ENTER} ssh -F {tmp_path}/theirs -G 127.77.0.1"), "their own -F counts"


GCLOUD = "gcloud compute tpus tpu-vm"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH")
def test_gcloud_logs_in_copies_and_tunnels(
    shell, simulator: RunningSimulator, home: Path, tmp_path: Path
) -> None:
    """Plain commands, as in Google's documentation; nothing in ~/.ssh is written."""
    User(tmp_path).create(simulator.simulator.endpoints["tpu_grpc"], accelerator="v3-32", metadata={})
    names = [host.hostname for host in simulator.world.nodes.hosts()]
    before = files_of_ssh()
    on_all = f"{GCLOUD} ssh ada@one --worker=all --command='echo $HOSTNAME'"
    assert sorted(shell(f"{ENTER} {on_all} -q")) == names
    copy = f"echo hello >file; {GCLOUD} scp file ada@one: --worker=all -q"
    command = "--command='echo $HOSTNAME; cat file; exit 3'"
    tunnel = f"gcloud alpha compute tpus tpu-vm ssh ada@one --worker=2 --tunnel-through-iap {command} -q"
    assert shell(f"{ENTER} {copy}; {tunnel} || echo $?") == [names[2], "hello", "3"]
    assert (files_of_ssh(), (home / ".ssh").exists()) == (before, False)
    assert simulator.events.find(service="iap", what="connect")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gsutil"), reason="gsutil is not on the PATH")
def test_gsutil(shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    script = f"gsutil -q cp {tmp_path}/file gs://sim-project-tpuctl/g; gsutil cat gs://sim-project-tpuctl/g"
    assert shell(ENTER + script) == ["hello"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gsutil"), reason="gsutil is not on the PATH")
def test_gsutil_has_credentials_for_what_it_asks_by_the_xml_api(shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    url = "gs://sim-project-tpuctl/g"
    script = f"gsutil -q cp {tmp_path}/file {url}; gsutil -q acl set private {url} && echo private;"
    script += f"gsutil -o GSUtil:prefer_api=xml cat {url}"
    assert shell(ENTER + script) == ["private", "hello"]


def test_tpuctl_itself(shell) -> None:
    (line,) = shell(f"{ENTER} {TPUCTL} config show | grep target")
    assert line.split() == ["target", "sim", "TPUCTL_TARGET"]


def test_the_programs_come_first_in_path_once_and_leave_without_a_trace(
    shell, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/opt/a b:")
    leave = f'PATH="/added:$PATH"\neval "$({TPUCTL} sim env --unset)"\n'
    show = 'echo "$PATH"\n'
    entered, left = shell(f'{ENTER}{ENTER}{show}{leave}{show}echo "${{TPUCTL_SIM_PROGRAMS-none}}" >&2')
    programs = simulator.folder / "workstation" / "bin"
    assert entered == f"{programs}:{os.environ['PATH']}"
    assert left == f"/added:{os.environ['PATH']}"


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


@pytest.mark.parametrize(
    ("modules", "is_told"),
    [((), False), (("httplib2",), True), (("httplib2", "socks"), False), (("socks",), False)],
)
def test_pysocks_is_missed_where_httplib2_is_alone(
    simulator: RunningSimulator,
    tpuctl: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: tuple[str, ...],
    is_told: bool,
) -> None:
    programs, packages = tmp_path / "programs", tmp_path / "packages"
    for folder in (programs, packages):
        folder.mkdir()
    for module in modules:
        (packages / f"{module}.py").touch()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    shown = tpuctl("sim", "env")
    assert shown.code == 0
    assert ("pip install PySocks" in shown.err) == is_told
    assert "PySocks" not in shown.out, "what a shell evaluates"


def test_a_path_without_python_is_none_of_its_business(
    simulator: RunningSimulator,
    tpuctl: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = tpuctl("sim", "env")
    assert (shown.code, "PySocks" in shown.err) == (0, False)
