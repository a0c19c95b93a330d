"""The command forward."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tpuctl.cli import output, printing
from tpuctl.cli.remote.reaching import find_worker, worker_option
from tpuctl.cli.session import Session, reaching_options, with_session
from tpuctl.errors import UsageError
from tpuctl.flows.hosts.ssh_access import patient_ssh
from tpuctl.flows.remote.forwarding import forward as flow
from tpuctl.flows.remote.forwarding.listeners import Listener, is_port, listen, parse_ports
from tpuctl.flows.remote.targets import Hosts, admit


@click.command()
@click.argument("words", nargs=-1, metavar="[NAME] [LOCAL:]PORT...")
@worker_option
@with_session
@reaching_options
def forward(session: Session, words: tuple[str, ...], worker: str | None) -> None:
    """Forward ports of this machine to a worker of a TPU (default: your only TPU), until Ctrl-C.

    6006 is port 6006 here and there, 16006:6006 is 16006 here, :6006 is any free port here. Only programs on
    this machine can connect. A connection that is lost, as when a laptop sleeps, is opened again.

    \b
    Example:
      tpuctl forward 6006
      tpuctl forward ada-v3-8 16006:6006 8888 --worker 1
    """
    name = None if not words or is_port(words[0]) else words[0]
    pairs = [parse_ports(word) for word in words[name is not None :]]
    if not pairs:
        raise UsageError("Which port?", hint=f"Such as: tpuctl forward {name or ''} 6006".replace("  ", " "))
    provider, ssh = session.cloud.provider, session.cloud.ssh
    hosts = find_worker(session, name, worker)
    listeners = listen(pairs)
    try:
        admitted = admit(provider, ssh, hosts, ssh.login_key(), output.note)
        patient = patient_ssh(provider, ssh, admitted.node)
        flow.forward(
            provider,
            patient,
            admitted,
            listeners,
            output.note,
            lambda: _show_ports(session, admitted, listeners),
        )
    finally:
        for listener in listeners:
            listener.close()


def _show_ports(session: Session, hosts: Hosts, listeners: Sequence[Listener]) -> None:
    (worker,), name = hosts.workers, hosts.node.name
    if session.as_json:
        ports = [{"local": item.ports.local, "remote": item.ports.remote} for item in listeners]
        output.json_line({"node": name, "worker": worker, "address": "127.0.0.1", "ports": ports})
        return
    for item in listeners:
        printing.write_at_once(
            f"localhost:{item.ports.local} is port {item.ports.remote} of worker {worker} of {name}"
        )
    output.note("Press Ctrl-C to end.")
