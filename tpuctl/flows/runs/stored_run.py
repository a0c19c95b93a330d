"""Reads a run from the bucket: immutable records once, the others on every access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from tpuctl import runs
from tpuctl.bucket_layout import ATTEMPT_FOLDER, NodePaths, RunPaths
from tpuctl.bucket_objects import BadObjectError, too_large
from tpuctl.errors import ConflictError, NotFoundError, StateError, UsageError, joined_hints
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs import results
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, sign_of
from tpuctl.flows.runs.stored_attempt import StoredAttempt, age_of, find_record
from tpuctl.host.worker.records import MOST_CHARACTERS, StopRequest, check_stop
from tpuctl.nodes import NodeId
from tpuctl.parallel import fanout, values
from tpuctl.runs import (
    BY_MACHINE,
    BY_WORKERS,
    RANKS,
    Attempt,
    Run,
    Verdict,
    decode,
    encode,
    run_metadata,
    run_type,
    verdict_metadata,
    verdict_type,
)
from tpuctl.upkeep import LARGEST_REMOVAL as LARGEST_REMOVAL
from tpuctl.upkeep import REMOVAL_TYPE, Notes, find_removal

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


MOST_UNREADABLE = 5
"""Attempts, from the newest, of which one has to be readable."""
FEW = 12
"""Attempts that are read by their numbers: a listing costs as much as so many other requests."""
CLOSE_AFTER = 7200.0
"""Seconds after which what the machine said is final: a worker tries to write its last word for an hour."""
REPLACEMENTS = 5
"""Times that a verdict is looked at again, because another reader has replaced it meanwhile."""
FRESH = 5.0
"""Seconds within which a status and a verdict count as written at the same time."""


class StoredRun:
    """One run in one bucket; reads only when a method is called."""

    def __init__(self, bucket: Bucket, name: str, warn: Report = silent) -> None:
        """Take `warn`, which gets a line about each object that is no record of tpuctl and is left out."""
        self.bucket = bucket
        self.name = name
        self.warn = warn
        self.paths = RunPaths(name)
        self._attempts: dict[int, StoredAttempt] = {}
        self._verdict: Verdict | None = None
        self._closed = False
        self._last = 0
        """Number of the newest attempt that was seen; 0 before one was."""

    @cached_property
    def record(self) -> Run:
        """run.json; raises NotFoundError when there is no such run, BadObjectError when it is no record.

        RecordMissingError for one that works, though its record is gone.
        """
        data = self.bucket.find(self.paths.record, LARGEST_REMOVAL)
        if data is None:
            raise self.not_found()
        try:
            if len(data) > runs.LARGEST[Run]:
                raise too_large(self.paths.record, runs.LARGEST[Run])
            return decode(data, Run, self.paths.record, self._check)
        except BadObjectError:
            if find_removal(data, self.name):
                raise self.being_removed() from None
            raise

    def notes(self) -> Notes:
        """Return notes.json, which may change at any time; raises BadObjectError when it is no record."""
        return find_record(self.bucket, self.paths.notes, Notes, self._check) or Notes(self.name)

    def verdict(self) -> Verdict | None:
        """Return verdict.json, or None before it is written; raises BadObjectError when it is no verdict.

        It may be replaced until it is closed, and is none any more once another attempt has followed. Raises
        RecordMissingError where one has whose record is gone.
        """
        if not self._closed or (self._verdict and self._verdict.may_be_followed):
            verdict = find_record(self.bucket, self.paths.verdict, Verdict, self._check)
            self._note(None if verdict and self._is_followed(verdict) else verdict)
        return self._verdict

    def _is_followed(self, verdict: Verdict) -> bool:
        """Whether the run has been started again since."""
        if not verdict.may_be_followed:
            return False
        if self.bucket.stat(self.paths.attempt(verdict.attempt + 1)):
            return True
        sign = sign_of(self.bucket, self.name)
        if sign and sign.attempt > verdict.attempt:
            raise RecordMissingError(sign)
        return False

    def earlier_verdicts(self, before: int) -> list[Verdict]:
        """Return how the attempts before the `before`-th ended, in order, of those that have a record."""
        records = values(fanout(self.kept_verdict, self.attempts_before(before)))
        return [record for record in records if record]

    def attempts_before(self, before: int) -> Sequence[int]:
        """Return the numbers of the attempts before the `before`-th, in order.

        Of many these are the ones that have a record: whoever can create objects could have begun with the
        last number that there is.
        """
        if before - 1 <= FEW:
            return range(1, before)
        return [number for number in self.attempt_numbers() if number < before]

    def kept_verdict(self, attempt: int) -> Verdict | None:
        """Return how one attempt of several ended; None where it has no record of that."""
        return find_record(self.bucket, self.paths.attempt_verdict(attempt), Verdict, self._check)

    def keep_verdict(self, verdict: Verdict) -> None:
        """Write how one attempt of several ended; of several readers the first one's stays."""
        try:
            self.bucket.create(self.paths.attempt_verdict(verdict.attempt), encode(verdict))
        except ConflictError:
            pass

    @property
    def restarts(self) -> bool:
        """Whether the run may be started again; no for one whose record cannot be read, or was deleted.

        Raises NotFoundError for one that is being removed.
        """
        try:
            return bool(self.record.machine and self.record.restarts)
        except BadObjectError:
            return False
        except (NotFoundError, RecordMissingError):
            if self.bucket.stat(self.paths.record):
                raise
            return False

    @property
    def is_closed(self) -> bool:
        """Whether the verdict that was read last is final."""
        return self._closed

    def _note(self, verdict: Verdict | None) -> None:
        self._verdict = verdict
        rank = verdict.rank if verdict else 0
        self._closed = rank >= RANKS[BY_WORKERS]
        if rank == RANKS[BY_MACHINE]:
            stored = self.bucket.stat(self.paths.verdict)
            self._closed = age_of(stored, self.bucket.now()) > CLOSE_AFTER

    def is_refuted(self, verdict: Verdict, attempt: StoredAttempt, words: Sequence[WorkerWord]) -> bool:
        """Return whether a verdict builds on the silence of a worker that has written since.

        So it is if it is of an attempt that another has followed.
        """
        if verdict.attempt < attempt.number:
            return True
        silent = [
            word for word in words if word.worker in verdict.silent and word.status and word.is_readable
        ]
        if not silent:
            return False
        stored = self.bucket.stat(self.paths.verdict)
        age = age_of(stored, self.bucket.now())
        return any(word.age < age - FRESH for word in silent)

    def _check(self, record: Run | Verdict | Notes) -> None:
        if record.run != self.name:
            raise ValueError(f"it is of run {record.run!r}")

    def stop_request(self) -> StopRequest | None:
        """Return the request to stop it; raises BadObjectError for one that workers do not take for one."""

        def check(request: StopRequest) -> None:
            check_stop(request, self.name)

        return find_record(self.bucket, self.paths.stop, StopRequest, check)

    def attempt_numbers(self, until: Verdict | None = None) -> list[int]:
        """Return the numbers of all attempts that have a record, in order; none when there is no such run.

        Those after the one that the verdict `until` is about do not count: whoever can create objects could
        have added them.
        """
        records = self.bucket.objects(self.paths.attempts, glob=f"{self.paths.attempts}*/attempt.json")
        return [number for number in self.attempts_in(records) if until is None or number <= until.attempt]

    def attempts_in(self, objects: Iterable[Object]) -> list[int]:
        """Return the numbers of the attempts whose records are among listed objects, in order."""
        records = [item.name for item in objects if item.name.endswith("/attempt.json")]
        folders = [name.split("/")[-2] for name in records if name.count("/") == 4]
        for folder in folders:
            if not ATTEMPT_FOLDER.fullmatch(folder):
                name = f"{self.paths.attempts}{folder}/"
                self.warn(BadObjectError(name, "does not have the number of an attempt").message)
        return sorted(int(folder) for folder in folders if ATTEMPT_FOLDER.fullmatch(folder))

    def attempt(self, number: int) -> StoredAttempt:
        """Return one attempt, whether or not the bucket has it; the same object each time."""
        return self._attempts.setdefault(number, StoredAttempt(self, number))

    def last_attempt(self) -> StoredAttempt:
        """Return the newest attempt; raises NotFoundError without any, RecordMissingError if one works.

        From the second time on without a listing, which costs as much as twelve other requests.
        """
        if self._last:
            while self.bucket.stat(self.paths.attempt(self._last + 1)):
                self._last += 1
        else:
            self._last = max(self.attempt_numbers(), default=0)
        if not self._last:
            raise self._not_started()
        return self.attempt(self._last)

    @property
    def last_read(self) -> StoredAttempt | None:
        """The newest attempt whose record was read: it stays known where the bucket is deleted meanwhile."""
        read = [number for number, attempt in self._attempts.items() if attempt.is_read]
        return self._attempts[max(read)] if read else None

    def node_uids(self) -> frozenset[str]:
        """Return which nodes the last attempt is on, also where its record is gone, and it works.

        Raises as `last_attempt`, or BadObjectError.
        """
        try:
            return self.last_attempt().record.tpu.id.uids
        except RecordMissingError as error:
            return error.sign.tpu_uids

    def last_readable_attempt(self, until: Verdict | None = None) -> StoredAttempt:
        """Return the newest attempt whose record can be read; raises as `last_attempt`, or BadObjectError.

        `until` is as in `attempt_numbers`.
        """
        numbers = self.attempt_numbers(until)
        if not numbers:
            raise self._not_started()
        refused = []
        for number in numbers[: -MOST_UNREADABLE - 1 : -1]:
            try:
                self.attempt(number).record  # noqa: B018  read for its error
            except BadObjectError as error:
                refused.append(error)
                self.warn(error.message)
            else:
                return self.attempt(number)
        raise refused[0]

    def create(self, record: Run) -> None:
        """Write run.json; raises ConflictError when the name is taken, UsageError if none could read it.

        StateError where something is left of an earlier run: the new one would be told by its words.
        """
        if self.bucket.objects(self.paths.folder, most=1) and not self.bucket.stat(self.paths.record):
            raise self._left()
        try:
            self.bucket.create(
                self.paths.record, self._encoded(record), run_type(record), run_metadata(record)
            )
        except ConflictError as error:
            raise ConflictError(
                f"There is a run '{self.name}' already: its record exists.", hint="Choose another --name."
            ) from error

    def _encoded(self, record: Run) -> bytes:
        data = encode(record)
        try:
            if len(data) > runs.LARGEST[Run]:
                raise too_large(self.paths.record, runs.LARGEST[Run])
            decode(data, Run, self.paths.record, self._check)
        except BadObjectError as error:
            hint = "Pass fewer or shorter arguments and variables; large values belong into a file."
            raise UsageError(f"This run cannot be recorded: {error.message}", hint=hint) from error
        return data

    def create_attempt(self, record: Attempt) -> StoredAttempt:
        """Write an attempt.json; raises ConflictError when another machine has made this attempt.

        What says in the node's folder that it works there comes first: readers follow it to the attempt.
        Raises NotFoundError for a run that is being removed: of an attempt and a removal at once, the one
        that is written last sees the other.
        """
        self.announce(record)
        name = self.paths.attempt(record.attempt)
        self.bucket.create(name, encode(record))
        item = self.bucket.stat(self.paths.record)
        if item and item.content_type == REMOVAL_TYPE:
            attempt = self.bucket.stat(name)
            if attempt:
                self.bucket.remove(attempt)
            raise self.being_removed()
        return self.attempt(record.attempt)

    def announce(self, record: Attempt, *nodes: NodeId) -> None:
        """Write into the folders of an attempt's nodes that it is to run there, unless that is written."""
        for node in nodes or record.tpu.id.parts:
            note = NodePaths.of(node).run(self.name, record.attempt)
            try:
                self.bucket.create(note, encode({"run": self.name, "attempt": record.attempt}))
            except ConflictError:
                pass  # the attempt itself decides who is first

    def withdraw(self, record: Attempt) -> None:
        """Delete what was written of an attempt that every host refused; of the first one, the run, too."""
        number = record.attempt
        notes = [NodePaths.of(part).run(self.name, number) for part in record.tpu.id.parts]
        rest = [self.paths.record] if number == 1 else []
        names = (*notes, self.paths.launch(number), self.paths.attempt(number), *rest)
        for item in map(self.bucket.stat, names):
            if item:
                self.bucket.remove(item)

    def end(self, verdict: Verdict, *, is_refuted: Callable[[Verdict], bool] = lambda _: False) -> Verdict:
        """Write a verdict unless the run has one on evidence as good; return the one that the bucket holds.

        `is_refuted` says of another verdict whether its evidence has turned out wrong: it gives way to any.
        """
        verdict = msgspec.structs.replace(verdict, evidence=verdict.evidence[:MOST_CHARACTERS])
        written = encode(verdict), verdict_type(verdict), verdict_metadata(verdict)
        for _ in range(REPLACEMENTS):
            try:
                item = self.bucket.stat(self.paths.verdict)
                other = find_record(self.bucket, self.paths.verdict, Verdict, self._check) if item else None
                if item is None or other is None:
                    self.bucket.create(self.paths.verdict, *written)
                    results.write(self.bucket, self.paths, verdict)
                elif other.attempt > verdict.attempt or (
                    other.attempt == verdict.attempt and other.rank >= verdict.rank and not is_refuted(other)
                ):
                    verdict = other
                else:
                    self.bucket.replace(item, *written)
                    results.write(self.bucket, self.paths, verdict)
            except ConflictError:
                continue  # another reader was first: what it wrote may be better
            self._note(verdict)
            return verdict
        raise ConflictError(f"The verdict of run '{self.name}' keeps changing.", hint="Try again.")

    def _not_started(self) -> StateError:
        """Return the error for a run without an attempt."""
        error = self.not_found()
        if isinstance(error, RecordMissingError) or not self.bucket.stat(self.paths.record):
            return error
        return NotFoundError(
            f"Run '{self.name}' was not started: nothing of it runs.",
            hint=f"The same command with --name {self.name} starts it; 'tpuctl cancel {self.name}' ends it.",
            run=self.name,
        )

    def check_present(self) -> None:
        """Raise NotFoundError for a run that was removed, or is being removed, since it was read.

        So is one whose name is another run's now.
        """
        if StoredRun(self.bucket, self.name).record.token != self.record.token:
            raise self._absent()

    def being_removed(self) -> NotFoundError:
        """Return the error for a run of which only the rest is there, until that is deleted, too."""
        return NotFoundError(
            f"Run '{self.name}' is being removed.",
            hint=f"'tpuctl rm {self.name}' completes it; then the name is free.",
            run=self.name,
        )

    def not_found(self) -> StateError:
        """Return the error for a run that the bucket does not have: NotFoundError, unless something works.

        A missing record alone does not say that nothing runs.
        """
        sign = sign_of(self.bucket, self.name)
        return RecordMissingError(sign) if sign else self._absent()

    def _left(self) -> StateError:
        """Return the error for a name of which there are files without a record."""
        error = self.not_found()
        if isinstance(error, RecordMissingError):
            return error
        return StateError(
            f"Files of an earlier run '{self.name}' are in gs://{self.bucket.name}, and its record is gone.",
            hint=joined_hints("Choose another --name.", f"Remove them: tpuctl rm {self.name}"),
            run=self.name,
        )

    def _absent(self) -> NotFoundError:
        return NotFoundError(
            f"There is no run '{self.name}'.", hint="'tpuctl runs' lists them.", run=self.name
        )
