"""Resumes a run after a reboot of its hosts, with nobody watching: docs/runs.md.

- Keeps on a host what a run needs after a reboot: the spec of its attempt, and the command to resume it.
- Brings the hosts of an attempt together after a reboot: all of them start the next one, or none.

  Each host writes an object again and again while it waits. Once all are there, the first worker makes the
  next attempt; the others look for it. A run that has ended, or that somebody asks to stop, has none.
- Resumes one attempt of a run on this host: after a reboot of this host, or of another one of the run.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from tpuctl.host import gcs, timing
from tpuctl.host.worker.control import is_held_in, take
from tpuctl.host.worker.records import (
    LOCK_FILE,
    MAINTENANCE,
    REBOOT,
    STATUS_FILE,
    STOP_FILE,
    Spec,
    WorkerStatus,
    attempt_folder,
    encode,
    read_spec,
)
from tpuctl.host.worker.reporting import read_last, say, status_of

SPEC_FILE = "resume.json"
"""In the attempt's folder: the spec. Only its owner can read it; its one secret is the attempt's key."""
COMMAND_FILE = "resume"
"""Beside it, for sh: what the crontab runs at each boot."""
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "USER")
"""Variables of the login that cron does not set alike."""


def keep(spec: Spec, folder: str) -> None:
    """Write both files of an attempt, the command last; raises OSError."""
    folder = os.path.abspath(folder)
    _write_kept(os.path.join(folder, SPEC_FILE), encode(spec))
    _write_kept(os.path.join(folder, COMMAND_FILE), _command(folder).encode())


def read(folder: str) -> Optional[Spec]:
    """Return the spec that is kept in an attempt's folder; None where the run does not resume by itself."""
    try:
        with open(os.path.join(folder, SPEC_FILE), encoding="utf-8") as stream:
            spec = read_spec(stream)
    except (OSError, ValueError):
        return None
    return spec if spec.resumption else None


def forget(folder: str) -> None:
    """Delete both files: the attempt has ended for good, or another has followed."""
    for name in (COMMAND_FILE, SPEC_FILE):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass


def _command(folder: str) -> str:
    lines = ["cd %s" % shlex.quote(os.path.expanduser("~"))]
    lines += [
        "export %s=%s" % (name, shlex.quote(os.environ[name])) for name in PASSED_ON if name in os.environ
    ]
    program = [sys.executable, os.path.join(folder, "worker.zip"), "resume", folder]
    log = shlex.quote(os.path.join(folder, "supervisor.log"))
    lines.append("exec %s </dev/null >>%s 2>&1" % (" ".join(map(shlex.quote, program)), log))
    return "\n".join(lines) + "\n"


def _write_kept(path: str, data: bytes) -> None:
    part = path + ".part"
    with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())  # a host that dies must not keep a name without its content
    os.replace(part, path)


FOLDER = "resume/"
"""Inside the attempt's folder; its names end like those of statuses, which hosts may overwrite."""
LIMIT = 64 * 1024
"""Bytes of a verdict or a status that are read."""
RESTARTED = (MAINTENANCE, REBOOT)
"""Causes of a stop after which a host comes back with its disk."""


class _Refused(Exception):
    """No reboot has ended the attempt."""


class Meeting:
    """One worker's view of it; `status` is its last word."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, status: WorkerStatus) -> None:
        self._bucket = bucket
        self._spec = spec
        self._status = status
        self._folder = attempt_folder(spec.folder) + FOLDER
        self._workers = sorted(spec.participants) or [spec.worker]
        self._written = -timing.FRESH
        self.successor = Successor(bucket, spec)

    def wait(self) -> bool:
        """Return whether the workers have made the next attempt; False where this one is not resumed here.

        A bucket that cannot be reached delays it. It gives up in the end.
        """
        end = time.monotonic() + timing.MEETING_TIMEOUT
        for pause in timing.growing(timing.FIRST_LOOK, timing.LONGEST_MEETING_LOOK):
            answer = self._try()
            if answer is not None:
                return answer
            if time.monotonic() > end:
                say("not resumed: not every host of the run came back")
                return False
            timing.sleep(pause)
        raise AssertionError("the pauses have no end")

    def refuse(self) -> None:
        """Tell the others that this worker resumes nothing; raises gcs.GcsError."""
        if len(self._workers) > 1:
            self._bucket.create(self._place("no"), b"{}\n", "application/json")

    def _try(self) -> Optional[bool]:
        try:
            return self._look()
        except _Refused as refusal:
            say("not resumed: %s" % refusal)
            return self._try_to_refuse()
        except (gcs.GcsError, OSError, ValueError, KeyError) as error:
            say("waiting to resume the run: %s: %s" % (type(error).__name__, error))
            return None

    def _try_to_refuse(self) -> Optional[bool]:
        try:
            self.refuse()
        except (gcs.GcsError, OSError):
            return None
        return False

    def _look(self) -> Optional[bool]:
        made = self.successor.look()
        if made is not None:
            return made
        reason = self._reason_against()
        if reason:
            say("not resumed: %s" % reason)
            return False
        if not self._is_peer_restarted():
            return None
        self._appear()
        return self._lead() if self._spec.worker == self._workers[0] else None

    def _lead(self) -> Optional[bool]:
        """Make the next attempt if all are here; raises _Refused where no host was to come back."""
        told = self._restarted()
        if told is None or self.successor.is_leased() or not self._are_all_here():
            return None
        self.successor.make(told)
        return self.successor.look()

    def _reason_against(self) -> str:
        run = "runs/%s/" % self._spec.run
        if self._bucket.stat(run + STOP_FILE)[0]:
            return "somebody asked to stop the run"
        if len(self._workers) > 1 and self._bucket.stat(self._place("no"))[0]:
            return "another host of the run has ended for good"
        verdict = record_in(self._bucket.read(run + "verdict.json", LIMIT)[1])
        attempt = verdict.get("attempt")
        if isinstance(attempt, int) and attempt >= self._spec.attempt and not verdict.get("restarts"):
            return "the run has ended: %s" % verdict.get("outcome")
        return ""

    def _is_peer_restarted(self) -> bool:
        """Return whether the worker whose end ended this one was stopped with its host; False while unknown.

        Raises _Refused where it ended by itself.
        """
        if self._status.stopped or self._status.peer is None:
            return True
        other = self._word(self._status.peer)
        return bool(other and other.stopped)

    def _restarted(self) -> Optional[WorkerStatus]:
        """Return the word of a worker whose host says that it was to come back; None while none does.

        A host of several may get no notice of the maintenance of all. Raises _Refused where none did.
        """
        if self._status.cause in RESTARTED:
            return self._status
        words = [self._word(worker) for worker in self._workers if worker != self._spec.worker]
        told = [word for word in words if word and word.cause in RESTARTED]
        if not told and all(words):
            raise _Refused("no host of the run announced a maintenance: somebody has stopped the TPU")
        return told[0] if told else None

    def _word(self, worker: int) -> Optional[WorkerStatus]:
        """Return a worker's last word; None while its host is down. Raises _Refused for its own end."""
        name = "%sworkers/%d/%s" % (attempt_folder(self._spec.folder), worker, STATUS_FILE)
        generation, data = self._bucket.read(name, LIMIT)
        status = status_of(record_in(data)) if generation else None
        if status is None or not status.is_finished:
            return None
        if status.stopped_by or not (status.stopped or status.peer is not None):
            raise _Refused("worker %d has ended by itself" % worker)
        return status

    def _appear(self) -> None:
        """Say that this host is up, so that nobody counts on one that has gone down again."""
        if len(self._workers) > 1 and time.monotonic() > self._written + timing.FRESH / 3:
            self._bucket.put(self._place("%04d" % self._spec.worker), b"{}\n")
            self._written = time.monotonic()

    def _are_all_here(self) -> bool:
        if len(self._workers) == 1:
            return True
        ages = {item.name: item.age for item in self._bucket.list(self._folder)}
        places = [self._place("%04d" % worker) for worker in self._workers]
        return all(ages.get(place, timing.FRESH) < timing.FRESH for place in places)

    def _place(self, name: str) -> str:
        """Return the object of this name: only who has the key knows it."""
        place = self._folder + name
        seal = hmac.new(self._spec.key.encode(), place.encode(), "sha256").hexdigest()[:32]
        return "%s-%s/%s" % (place, seal, STATUS_FILE)


LEASE_SECONDS = 60
"""After which a lease that nobody has written again is late, whatever it claims: any job may have made it."""
CHECKPOINT = re.compile(rb'^model_checkpoint_path: "([^"]{1,1000})"', re.MULTILINE)
JSON = "application/json"


class Successor:
    """The attempt after that of a spec, as its workers make it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._spec = spec
        self._former = attempt_folder(spec.folder)
        self.number = spec.attempt + 1
        self._folder = "runs/%s/attempts/%d/" % (spec.run, self.number)

    def spec(self, *, lost_at_once: int) -> Spec:
        """Return the spec of this worker's part."""
        spec, former = self._spec, self._spec.resumption
        assert former is not None
        left = former.restarts - 1 if former.restarts > 0 else former.restarts
        return replace(
            spec,
            attempt=self.number,
            token=self._derived("attempt"),
            key=self._derived("key"),
            folder="%sworkers/%d/" % (self._folder, spec.worker),
            line=former.line,
            line_timeout=0.0,
            resumption=replace(former, restarts=left, lost_at_once=lost_at_once) if left else None,
        )

    def look(self) -> Optional[bool]:
        """Return whether the workers have made it; None for no attempt, False for one of a watcher."""
        generation, record = self._read("attempt.json")
        if not generation:
            return None
        return record.get("token") == self._derived("attempt")

    def is_leased(self) -> bool:
        """Return whether a watcher starts it now."""
        name = self._folder + "lease.json"
        generation, lease = self._read("lease.json")
        if not generation or lease.get("is_over"):
            return False
        ages = [item.age for item in self._bucket.list(name) if item.name == name]
        seconds = lease.get("seconds")
        longest = seconds if isinstance(seconds, int) else LEASE_SECONDS
        return bool(ages) and ages[0] <= min(longest, LEASE_SECONDS)

    def make(self, status: WorkerStatus) -> None:
        """Write its records; `status` is the last word of this worker. Another's attempt is left as it is."""
        former = record_in(self._bucket.get(self._former + "attempt.json"))
        self._create(self._former + "verdict.json", self._verdict(former, status))
        resumption = self._spec.resumption
        assert resumption is not None
        note = {"run": self._spec.run, "attempt": self.number}
        for line in (resumption.line, *resumption.others):
            self._create("%s%s/%d.json" % (line, self._spec.run, self.number), note)
        record = {
            **former,
            "attempt": self.number,
            "created": self._now(),
            "token": self._derived("attempt"),
        }
        self._create(self._folder + "attempt.json", record)

    def _verdict(self, former: Mapping[str, object], status: WorkerStatus) -> Mapping[str, object]:
        """Return how the attempt before has ended."""
        is_announced = status.cause == MAINTENANCE
        how = "had its maintenance" if is_announced else "was restarted"
        begun = status.started or (None if status.has_run else "")  # empty: it was in line for the TPU
        return {
            "run": self._spec.run, "outcome": MAINTENANCE if is_announced else "lost",
            "attempt": self._spec.attempt, "decided": self._now(),
            "evidence": "the host of worker %d %s; its run resumed by itself" % (status.worker, how),
            "basis": "machine", "ended": status.finished or status.heartbeat, "tpu": former["tpu"],
            "worker": status.worker, "started": former["created"], "restarts": True, "schema": 1,
            "begun": begun, "price": former.get("price"), "checkpoint": self._checkpoint(),
        }  # fmt: skip

    def _checkpoint(self) -> str:
        """Return the name of the checkpoint that TensorFlow's state file names; empty without one."""
        name = "runs/%s/checkpoints/checkpoint" % self._spec.run
        match = CHECKPOINT.search(self._bucket.read(name, LIMIT)[1])
        return match.group(1).decode("utf-8", "replace").rpartition("/")[2] if match else ""

    def _read(self, name: str) -> Tuple[int, Mapping[str, object]]:
        """Return the generation and content of a record; what is no record is empty."""
        generation, data = self._bucket.read(self._folder + name, LIMIT)
        return generation, record_in(data)

    def _create(self, name: str, record: Mapping[str, object]) -> None:
        self._bucket.create(name, json.dumps(record, indent=2).encode() + b"\n", JSON)

    def _derived(self, what: str) -> str:
        text = "%s %s %d" % (what, self._spec.run, self.number)
        return hmac.new(self._spec.key.encode(), text.encode(), "sha256").hexdigest()

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._bucket.now()))


def record_in(data: bytes) -> Dict[str, object]:
    """Return the content of an object, which anybody may have written; empty for what is no record."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


NOTE = "# tpuctl: resumes runs after a reboot"
LINE = (
    '@reboot for f in "$HOME"/.tpuctl/runs/*/*/resume; do [ -f "$f" ] && setsid sh "$f" & done; wait  ' + NOTE
)
"""Does nothing where no attempt has the file."""
TIMEOUT = 20.0
"""Seconds for an answer of the program crontab."""


def ensure() -> None:
    """Add the line to the user's crontab, unless it has it; other lines stay.

    Raises OSError for a host without cron, and where cron refuses.
    """
    folder = os.path.join(os.path.expanduser("~"), ".tpuctl")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "crontab.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that start at once add one line
        lines = _lines()
        if LINE in lines:
            return
        others = [line for line in lines if NOTE not in line]
        _write("".join(line + "\n" for line in [*others, LINE]))


def _lines() -> List[str]:
    listed = _crontab("-l")
    if listed.returncode and b"no crontab for" not in listed.stderr:
        raise OSError("crontab -l: %s" % listed.stderr.decode("utf-8", "replace").strip())
    return listed.stdout.decode("utf-8", "surrogateescape").splitlines()


def _write(text: str) -> None:
    written = _crontab("-", text.encode("utf-8", "surrogateescape"))
    if written.returncode:
        raise OSError("crontab: %s" % written.stderr.decode("utf-8", "replace").strip())


def _crontab(argument: str, text: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("crontab")
    if program is None:
        raise OSError("this host has no crontab")
    return subprocess.run(
        [program, argument],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
        check=False,
    )


SOON = 120.0
"""Seconds within which an attempt that a reboot ended was lost at once, as in flows/runs/state.py."""
MOST_LOST_AT_ONCE = 2
"""Attempts in a row: after these a watcher replaces the machine."""
Start = Callable[[str], int]
"""`launch` of the program, which takes the path of a spec."""
LastWord = Callable[[Spec, str], None]
"""Says in the bucket how a worker ended that did not say so."""


def resume(folder: str, say_last_word: LastWord, start: Start) -> int:
    """Start the next attempt of the run in an attempt's folder, if its host's restart is why it ended."""
    spec = read(folder)
    if spec is None:
        return 0
    with open(os.path.join(folder, "resume.lock"), "ab") as lock:
        if not take(lock):
            return 0
        path = _prepared(spec, folder, say_last_word)
    code = start(path) if path else 0
    forget(folder)
    return code


def after_end(folder: str) -> None:
    """Forget an attempt that has ended, unless a reboot is why: of this host, or of another one of the run.

    For another host the command waits in a process of its own: this one holds the lock of the attempt.
    """
    status = last_status(folder)
    if status is None or (status.stopped and not status.stopped_by):
        return  # the command runs at the next boot
    if not concerns(status):
        forget(folder)
    elif os.path.exists(os.path.join(folder, COMMAND_FILE)):
        command = ["sh", os.path.join(folder, COMMAND_FILE)]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def concerns(status: WorkerStatus) -> bool:
    """Return whether a reboot may have ended a worker's script: its host's, or that of another worker."""
    return not status.stopped_by and bool(status.stopped or status.peer is not None)


def last_status(folder: str) -> Optional[WorkerStatus]:
    """Return the newest status on this host's disk; None without one."""
    return status_of(read_last(folder))


def _prepared(spec: Spec, folder: str, say_last_word: LastWord) -> str:
    """Return the path of the next attempt's spec once all hosts are there; empty where none follows."""
    if not timing.wait_until(lambda: not is_held_in(folder, LOCK_FILE), timing.START_TIMEOUT):
        return ""  # its supervisor lives: nothing was restarted
    bucket = gcs.Bucket(spec.bucket)
    try:
        say_last_word(spec, folder)
        status = last_status(folder)
        meeting = Meeting(bucket, spec, status) if status else None
        if status is None or meeting is None:
            return ""
        lost = _lost_at_once(spec, status)
        if not concerns(status) or lost >= MOST_LOST_AT_ONCE:
            say("not resumed: %s" % _reason_against(status, lost))
            meeting.refuse()
            return ""
        return _written(meeting.successor.spec(lost_at_once=lost), folder) if meeting.wait() else ""
    finally:
        bucket.close()


def _reason_against(status: WorkerStatus, lost: int) -> str:
    if lost >= MOST_LOST_AT_ONCE:
        return "%d attempts in a row were lost at once; 'tpuctl watch' replaces the TPU" % lost
    if status.stopped_by:
        return "%s asked to stop it" % status.stopped_by
    return "it had ended before: exit code %s, %s" % (status.exit_code, status.error or "no error")


def _lost_at_once(spec: Spec, status: WorkerStatus) -> int:
    """Return how many attempts in a row, this one included, a reboot without notice has ended at once."""
    before = spec.resumption.lost_at_once if spec.resumption else 0
    if status.cause != REBOOT:
        return 0
    return before + 1 if timing.between(status.started, status.heartbeat) <= SOON else 0


def _written(spec: Spec, folder: str) -> str:
    """Write program and spec of an attempt into its folder beside `folder`, and return the spec's path."""
    following = os.path.join(os.path.dirname(os.path.abspath(folder)), str(spec.attempt))
    os.makedirs(following, mode=0o700, exist_ok=True)
    shutil.copyfile(os.path.join(folder, "worker.zip"), os.path.join(following, "worker.zip"))
    path = os.path.join(following, "spec.json")
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(encode(spec))
    say("resumed as attempt %d" % spec.attempt)
    return path
