"""Getting in: our key on a node, and SSH that answers on every host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuctl.errors import DeadlineError, HostError
from tpuctl.flows.progress import Tell
from tpuctl.nodes import Node
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.tpu import TpuApi

KEY_TIMEOUT = 120.0
SSH_TIMEOUT = 300.0


def key_line(ssh: Ssh) -> str:
    return f"{ssh.user}:{ssh.public_key()} {ssh.user}"


def install_key(tpu: TpuApi, ssh: Ssh, node: Node, tell: Tell) -> Node:
    line = key_line(ssh)
    lines = [one for one in node.metadata.get("ssh-keys", "").split("\n") if one]
    if line in lines:
        return node
    tell(f"adding your SSH key to {node.name}")
    metadata = {**node.metadata, "ssh-keys": "\n".join([*lines, line])}
    operation = tpu.update_metadata(node, metadata)
    poll(
        lambda: tpu.finished(operation) or None,
        awaiting=f"{operation.what} to take the SSH key",
        timeout=KEY_TIMEOUT,
    )
    return replace(node, metadata=metadata)


def await_ssh(tpu: TpuApi, ssh: Ssh, node: Node, tell: Tell) -> None:
    """Keys take seconds to arrive on the hosts and a first boot takes longer: try until the time is up."""
    tell(f"waiting for SSH on {len(node.addresses)} host{'s' if len(node.addresses) > 1 else ''}")
    keys: Mapping[int, str] = poll(
        lambda: _all_keys(tpu, node), awaiting=f"the host keys of '{node.name}'", timeout=SSH_TIMEOUT,
        hint="They come with guest attributes: see that the project has not turned them off.",
    )  # fmt: skip

    def reachable(worker: int) -> None:
        last = ""

        def answers() -> bool | None:
            nonlocal last
            try:
                with ssh.connect(node, worker, keys[worker]) as session:
                    return session.run(["true"]).code == 0
            except HostError as error:
                if "host_key" in error.facts:
                    raise  # trying again would only ask an impostor again
                last = f"{error.message} {error.hint}"
                return None

        try:
            poll(answers, awaiting=f"SSH on worker {worker}", timeout=SSH_TIMEOUT)
        except DeadlineError as error:
            raise HostError(f"Worker {worker} of '{node.name}' is not reachable: {last}") from error

    values(fanout(reachable, range(len(node.addresses))))


def _all_keys(tpu: TpuApi, node: Node) -> Mapping[int, str] | None:
    keys = tpu.host_keys(node)
    return keys if len(keys) == len(node.addresses) else None
