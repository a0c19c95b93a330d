"""Starting the program on a host: how long its answer is waited for, and what each answer means.

A start that takes long gives signs, so that the workers which wait know that it goes on.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import running_simulator
from tests.flows.nodes.memory_provider import node
from tests.host.worker.host import SPEC
from tests.running_simulator import RunningSimulator
from tests.sim.live_host import wait_until
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import CommandResult, Pool, SshSession
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError, DeadlineError, HostError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_sign
from tpuctl.flows.runs.submission.launch import KEPT, START, _tar, launch, launch_all
from tpuctl.flows.runs.submission.launch_sign import FIRST, INTERVAL, LaunchSign
from tpuctl.host import timing
from tpuctl.host.worker.records import Spec, encode
from tpuctl.nodes import Node
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts.programs.processes import FULL


class RecordingSsh:
    """Hosts that answer a start with what `answers` has for their worker: output, errors and exit code."""

    def __init__(self, *answers: tuple[str, str] | tuple[str, str, int]) -> None:
        self._answers = answers
        self.commands: list[tuple[int, tuple[str, ...]]] = []
        self.timeouts: list[float] = []
        self.files: dict[str, tuple[int, bytes]] = {}
        """Name of each file -> its mode and content."""

    def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
        return Pool(lambda worker: self.connect(node, worker, host_key(worker)))  # type: ignore[arg-type]

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[RecordingSession]:
        yield RecordingSession(self, worker)

    def answer(self, worker: int) -> CommandResult:
        out, errors, code = (*self._answers[worker], 0)[:3]
        return CommandResult(code, out, errors)


class RecordingSession:
    """A connection to one worker."""

    is_open = True

    def __init__(self, ssh: RecordingSsh, worker: int) -> None:
        self._ssh = ssh
        self._worker = worker

    def run(self, argv: Sequence[str], timeout: float = 0.0, stdin: bytes = b"") -> CommandResult:
        self._ssh.commands.append((self._worker, tuple(argv)))
        if argv[0] == "kill":
            return CommandResult(0, "", "")
        self._ssh.timeouts.append(timeout)
        with tarfile.open(fileobj=io.BytesIO(stdin)) as archive:
            for member in archive:
                content = archive.extractfile(member)
                self._ssh.files[member.name] = (member.mode, content.read() if content else b"")
        return self._ssh.answer(self._worker)


def start(ssh: RecordingSsh) -> int:
    """Launch on worker 0."""
    return launch(RecordingSession(ssh, 0), b"zip", spec(0))  # type: ignore[arg-type]


def started(pid: int) -> tuple[str, str]:
    return json.dumps({"pid": pid}), ""


def spec(worker: int) -> Spec:
    return replace(SPEC, worker=worker, workers=2)


def test_the_program_has_the_time_to_give_up_by_itself() -> None:
    """Else SSH would end first, and the reason be lost."""
    ssh = RecordingSsh(started(7))
    assert start(ssh) == 7
    assert ssh.timeouts == [180.0]
    assert ssh.timeouts[0] >= timing.START_TIMEOUT + 30


def test_program_and_spec_travel_with_the_command_that_starts_them() -> None:
    """In one round trip, and on no command line, which every user of the host can read."""
    ssh = RecordingSsh(started(7))
    start(ssh)
    assert ssh.files == {"worker.zip": (0o600, b"zip"), "spec.json": (0o600, encode(spec(0)))}
    name = hashlib.sha256(b"zip").hexdigest()
    assert ssh.commands == [(0, ("sh", "-c", START, "sh", ".tpuctl/runs/r1/1", name))]


HOSTILE = (
    "5", "null", "[]", "{}", '{"pid": null}', '{"pid": Infinity}', '{"pid": -1}', '{"error": {}}',
    "[" * 100_000,
)  # fmt: skip
"""Answers that our program does not give."""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((json.dumps({"error": "no answer in 120 s"}), "ignored"), "no answer in 120 s"),
        (("", "Traceback\npython3: not found\n"), "python3: not found"),
        (("", ""), "no answer"),
        (("no JSON", "the last\nline"), "line"),
        ((json.dumps({"pid": "x"}), "text"), "text"),
        *(((answer, ""), "no answer") for answer in HOSTILE),
    ],
)
def test_an_answer_without_a_pid_is_an_error_with_the_reason(answer: tuple[str, str], reason: str) -> None:
    with pytest.raises(HostError) as failed:
        start(RecordingSsh(answer))
    assert failed.value.message == f"Worker 0 could not start the script: {reason}."


WORDS = "Permission 'storage.objects.create' denied on resource (or it may not exist)."


@pytest.mark.parametrize(
    ("account", "who", "member"),
    [
        (
            "tpu@p.iam.gserviceaccount.com",
            ", tpu@p.iam.gserviceaccount.com,",
            "tpu@p.iam.gserviceaccount.com",
        ),
        ("", "", "ACCOUNT"),
        ("x@y; rm -rf ~", "", "ACCOUNT"),
    ],
)
def test_an_account_that_may_not_write_is_named_with_the_command(account: str, who: str, member: str) -> None:
    """What a host answers comes into a command that is copied."""
    answer = json.dumps({"error": WORDS, "cause": "forbidden", "account": account}), "Traceback\n"
    with pytest.raises(ConfigError) as failed:
        launch_all(RecordingSsh(answer), node(), {0: "key"}, [spec(0)])  # type: ignore[arg-type]
    told = f"The service account of the TPU{who} may not write into gs://{SPEC.bucket}: {WORDS}"
    assert failed.value.message == f"{told} Node 'n1' bills."
    grant, delete = failed.value.hint.splitlines()
    assert grant.endswith(
        f"gcloud storage buckets add-iam-policy-binding gs://{SPEC.bucket}/ "
        f"--member serviceAccount:{member} --role roles/storage.objectUser"
    )
    assert delete == "Delete it: tpuctl down n1"


def test_what_a_login_prints_before_the_answer_is_passed_over() -> None:
    out, err = started(7)
    assert start(RecordingSsh((f"Welcome!\n{out}\n", err))) == 7


@pytest.mark.parametrize("answer", [json.dumps({"error": "no disk"}), *HOSTILE])
def test_a_failure_on_one_worker_stops_those_that_started(answer: str) -> None:
    ssh = RecordingSsh(started(7), (answer, ""))
    with pytest.raises(HostError, match=r"Worker 1 could not start the script: no (disk|answer)"):
        launch_all(ssh, node(), {0: "key", 1: "key"}, [spec(0), spec(1)])  # type: ignore[arg-type]
    assert [command for command in ssh.commands if command[1][0] == "kill"] == [(0, ("kill", "-TERM", "7"))]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (91, "Worker 0 cannot make .tpuctl/runs/r1/1: No space left on device."),
        (92, "Worker 0 cannot write the program into .tpuctl/runs/r1/1: No space left on device."),
        (93, "Worker 0 has no python3."),
    ],
)
def test_the_step_that_fails_is_named(code: int, text: str) -> None:
    with pytest.raises(HostError) as failed:
        start(RecordingSsh(("", "tar: No such thing\nNo space left on device\n", code)))
    assert failed.value.message == text
    assert failed.value.hint


def test_a_worker_without_a_host_key_is_named_and_the_others_are_stopped() -> None:
    """Its host may still boot; it is no bug of ours."""
    ssh = RecordingSsh(started(7), started(8))
    with pytest.raises(HostError, match="worker 1 of 'n1': it has published no host key") as failed:
        launch_all(ssh, node(), {0: "key"}, [spec(0), spec(1)])  # type: ignore[arg-type]
    assert "tpuctl wait n1" in failed.value.hint
    assert ssh.commands[-1] == (0, ("kill", "-TERM", "7"))


def test_a_worker_that_is_lost_before_it_is_stopped_hides_no_reason() -> None:
    class Lost(RecordingSession):
        def run(self, argv: Sequence[str], timeout: float = 0.0, stdin: bytes = b"") -> CommandResult:
            if argv[0] == "kill":
                raise HostError("No route.")
            return super().run(argv, timeout, stdin)

    class LostSsh(RecordingSsh):
        @contextmanager
        def connect(self, node: Node, worker: int, host_key: str) -> Iterator[RecordingSession]:
            yield Lost(self, worker)

    ssh = LostSsh(started(7), (json.dumps({"error": "no disk"}), ""))
    with pytest.raises(HostError, match="Worker 1 could not start the script: no disk"):
        launch_all(ssh, node(), {0: "key", 1: "key"}, [spec(0), spec(1)])  # type: ignore[arg-type]


class TestHost:
    """The command that starts the program, on a simulated host."""

    FOLDER = ".tpuctl/runs/r1/1"

    @pytest.fixture
    def session(self, cloud: Cloud, node: str) -> Iterator[SshSession]:
        ready = cloud.provider.list_nodes().nodes[0]
        with cloud.ssh.connect(ready, 0, cloud.provider.host_keys(ready.id)[0]) as session:
            yield session

    def home(self, simulator: RunningSimulator) -> Path:
        return next(Path(simulator.folder, "hosts").glob("*/w0/home"))

    def test_folders_and_files_are_private_also_those_that_existed(
        self, session: SshSession, simulator: RunningSimulator
    ) -> None:
        home = self.home(simulator)
        folder = home / self.FOLDER
        folder.mkdir(parents=True)
        (folder / "worker.zip").write_bytes(b"old")
        for path in (home / ".tpuctl", folder, folder / "worker.zip"):
            path.chmod(0o777)
        with pytest.raises(HostError):
            launch(session, b"no zip", spec(0))
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (home / ".tpuctl", folder)}
        assert set(modes.values()) == {0o700}, modes
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert (folder / "worker.zip").read_bytes() == b"no zip"
        assert [path.read_bytes() for path in folder.glob("*.json")] == [encode(spec(0))]

    def test_a_full_disk_is_named_and_no_secret_stays(
        self, session: SshSession, simulator: RunningSimulator
    ) -> None:
        home = self.home(simulator)
        simulator.faults.add("disk-full", node="n1")
        wait_until((home.parent / FULL).exists)
        with pytest.raises(
            HostError, match=rf"Worker 0 cannot write the program into {self.FOLDER}: "
        ) as full:
            launch(session, b"zip", spec(0))
        assert "Is its disk full?" in full.value.hint
        assert list((home / self.FOLDER).rglob("*.json*")) == []

    def test_a_connection_that_ends_while_files_are_sent_starts_nothing(
        self, session: SshSession, simulator: RunningSimulator
    ) -> None:
        """Half a tar file is none."""
        argv = ["sh", "-c", START, "sh", self.FOLDER]
        result = session.run(argv, stdin=b"worker.zip".ljust(200, b"\0"))
        assert result.exit_code == 92
        assert list((self.home(simulator) / self.FOLDER).iterdir()) == []

    @pytest.mark.parametrize("before", [None, b"first"], ids=["first", "second"])
    def test_a_launch_puts_the_program_there_whole(
        self, session: SshSession, simulator: RunningSimulator, before: bytes | None
    ) -> None:
        """The python3 of another one may be reading it."""
        if before:
            with pytest.raises(HostError):
                launch(session, before, spec(0))
        program = self.home(simulator) / self.FOLDER / "worker.zip"
        folder = program.parent
        data = _tar({"worker.zip": b"second" * 20_000, "spec.json": b"{}"})
        process = session.start(["sh", "-c", START, "sh", self.FOLDER])
        process.write(data[:60_000])
        wait_until(lambda: any(path.stat().st_size > 10_000 for path in folder.rglob("worker.zip")))
        assert (program.read_bytes() if program.exists() else None) == before
        process.write(data[60_000:])
        process.end_input()
        process.read()
        assert process.exit_code() == 1, "no program"
        assert program.read_bytes() == b"second" * 20_000
        assert {path.suffix for path in folder.iterdir()} == {".zip", ".json"}
        assert all(path.is_file() for path in folder.iterdir())

    def test_each_of_two_launches_at_once_reads_its_own_spec(
        self, session: SshSession, simulator: RunningSimulator
    ) -> None:
        """Else one of them would take that of the other, which then has none."""
        program = b"import sys\nprint(sys.argv[2], open(sys.argv[2]).read())"
        argv = ["sh", "-c", START, "sh", self.FOLDER, "0"]
        shown = [
            session.run(argv, stdin=_tar({"worker.zip": program, "spec.json": text})).stdout.split()
            for text in (b"first", b"second")
        ]
        paths, texts = zip(*shown, strict=True)
        assert texts == ("first", "second")
        assert Path(paths[0]).read_text() == "first"
        assert {Path(path).parent for path in paths} == {self.home(simulator) / self.FOLDER}

    @pytest.mark.parametrize(
        ("kept", "code"), [(b"raise SystemExit(41)", 41), (b"", 40)], ids=["whole", "empty"]
    )
    def test_a_kept_program_is_started_unless_it_is_empty(
        self, session: SshSession, simulator: RunningSimulator, kept: bytes, code: int
    ) -> None:
        """A file system may keep the name of a file, and not its content, when a host dies."""
        sent = b"raise SystemExit(40)"
        file = self.home(simulator) / KEPT / f"{hashlib.sha256(sent).hexdigest()}.zip"
        file.parent.mkdir(parents=True)
        file.write_bytes(kept)
        argv = ["sh", "-c", START, "sh", self.FOLDER, file.stem]
        assert session.run(argv, stdin=_tar({"worker.zip": sent, "spec.json": b""})).exit_code == code

    def test_a_host_without_python3_is_told_so(
        self, session: SshSession, simulator: RunningSimulator
    ) -> None:
        path = session.run(["sh", "-c", "mkdir bin; for p in sh install tar mkdir mv rm rmdir; do "
                            "ln -s $(command -v $p) bin; done; echo $PWD/bin"]).stdout.strip()  # fmt: skip
        files = _tar({"worker.zip": b"zip", "spec.json": b"{}"})
        result = session.run(["env", f"PATH={path}", "sh", "-c", START, "sh", self.FOLDER], stdin=files)
        assert result.exit_code == 93
        assert [path.name for path in (self.home(simulator) / self.FOLDER).iterdir()] == ["worker.zip"]


def test_a_host_that_may_not_write_says_so_in_the_services_words(
    simulator: RunningSimulator, tpuctl: Callable[..., running_simulator.CommandResult], node: str
) -> None:
    """The most likely failure in a new organization, whose default account has no role at all."""
    simulator.faults.add("gcs-error", status="403", method="storage.objects.create", object="*/status.json")
    Path("job.py").write_text(
        '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    )
    submitted = tpuctl("submit", "job.py", "--tpu", node)
    assert submitted.code == 3, submitted.err
    assert "may not write into gs://sim-project-tpuctl: The simulator was asked to fail." in submitted.err
    account = simulator.world.nodes.hosts()[0].service_account
    assert f"--member serviceAccount:{account} --role roles/storage.objectUser" in submitted.err
    assert f"tpuctl down {node}" in submitted.err
    assert "{" not in submitted.err


NAME = "runs/r1/attempts/2/launch.json"


def signs(bucket: Bucket) -> int:
    """The generation of the last sign; 0 before the first."""
    item = bucket.stat(NAME)
    return item.generation if item else 0


def await_sign_after(bucket: Bucket, last: int) -> int:
    return poll(
        lambda: now if (now := signs(bucket)) > last else None,
        awaiting="a sign", timeout=60, backoff=Backoff(0.01, 0.1),
    )  # fmt: skip


def test_it_is_given_again_and_again_until_the_start_is_over(bucket: Bucket) -> None:
    with LaunchSign(StoredRun(bucket, "r1"), 2, first=0.0, interval=0.01):
        first = await_sign_after(bucket, 0)
        await_sign_after(bucket, first)
    last = signs(bucket)
    assert signs(bucket) == last


def test_a_start_that_takes_no_time_writes_nothing(bucket: Bucket) -> None:
    with LaunchSign(StoredRun(bucket, "r1"), 2):
        pass
    assert bucket.objects("runs/") == []
    assert FIRST + INTERVAL < timing.LAUNCH_SILENCE, "the first two are there before workers ask"


def test_a_bucket_that_does_not_answer_ends_no_start(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, refused = bucket.upload, list[str]()

    def refuse_once(name: str, *rest: object) -> object:
        if not refused:
            refused.append(name)
            raise DeadlineError("gs://b does not answer.")
        return upload(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(bucket, "upload", refuse_once)
    with LaunchSign(StoredRun(bucket, "r1"), 2, first=0.0, interval=0.01):
        await_sign_after(bucket, 0)
    assert refused == [NAME]


def test_the_first_comes_after_twenty_seconds_and_another_each_fifteen(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, over = list[float](), threading.Event()

    class Ended:
        """An event that three pauses take no time to wait for."""

        def wait(self, seconds: float) -> bool:
            pauses.append(seconds)
            return len(pauses) == 3 and not over.set()

        def set(self) -> None: ...

    fake = SimpleNamespace(Event=Ended, Thread=threading.Thread)
    monkeypatch.setattr(launch_sign, "threading", fake)
    with LaunchSign(StoredRun(bucket, "r1"), 2):
        assert over.wait(60)
    assert pauses == [20.0, 15.0, 15.0]
    assert b'"by"' in bucket.read(NAME)
