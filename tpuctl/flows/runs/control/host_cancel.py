"""Stops a run of which the bucket has no record: its hosts know it, and read the request there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuctl import polling
from tpuctl.errors import TpuctlError
from tpuctl.flows.hosts.published_keys import published_key
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.control.cancel import EVERY_SECOND, REACTION, tell
from tpuctl.flows.runs.evidence.signs import RecordMissingError
from tpuctl.flows.runs.evidence.witnesses import HostRun, Witnesses
from tpuctl.parallel import fanout, values
from tpuctl.polling import Sleep, poll
from tpuctl.worker.records import StopRequest

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


def find_on_hosts(witnesses: Witnesses, owner: str, run: str, error: TpuctlError) -> list[HostRun]:
    """Return where a run lives whose record cannot be read for that error.

    The hosts of an owner's TPUs are asked, and those on which it works as its status says.
    """
    uid = error.sign.tpu_uid if isinstance(error, RecordMissingError) else ""
    nodes = [
        node.id
        for item in take_inventory(witnesses.provider).allocations
        for node in item.nodes
        if item.is_owned_by(owner) or node.id.uid == uid
    ]
    answers = values(fanout(witnesses.at_work, nodes))
    return [part for answer in answers for part in answer.runs if part.run == run]


def stop_on_hosts(
    ssh: Ssh, witnesses: Witnesses, parts: Sequence[HostRun], request: StopRequest, report: Report,
    sleep: Sleep = polling.sleep,
) -> None:  # fmt: skip
    """Ask a run to stop where it lives, and return once nothing of it does.

    Raises the error of a host that was not told, and DeadlineError for one on which it did not end in time.
    """
    values(fanout(lambda part: _tell(ssh, witnesses, part, request), parts))
    nodes = dict.fromkeys(part.node.id for part in parts)
    report(f"asked run '{request.run}' on its hosts to stop, with {request.grace} s to save")

    def look() -> bool | None:
        answers = [witnesses.at_work(node) for node in nodes]
        lives = any(part.run == request.run for answer in answers for part in answer.runs)
        return None if lives or any(answer.error for answer in answers) else True

    poll(
        look, awaiting=f"the end of run '{request.run}'", timeout=request.grace + REACTION,
        backoff=EVERY_SECOND, sleep=sleep,
    )  # fmt: skip


def _tell(ssh: Ssh, witnesses: Witnesses, part: HostRun, request: StopRequest) -> None:
    key = published_key(part.node, witnesses.provider.host_keys(part.node.id), part.worker)
    with ssh.connect(part.node, part.worker, key) as session:
        tell(session, part.worker, request, part.attempt)
