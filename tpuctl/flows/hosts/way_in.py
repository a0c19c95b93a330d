"""Says whether hosts can be reached, through IAP or from outside, before any of them bills.

- Knows OS Login: where it is on, hosts ignore the keys in metadata, and with them those of tpuctl.
- Reads the published host keys of a node's workers: no other key is trusted.
- Adds our SSH key to a node, and waits until every host answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConfigError, DeadlineError, HostError, NotFoundError, TpuctlError, in_one_line
from tpuctl.flows.hosts.bucket_access import change_metadata
from tpuctl.flows.progress import Report, silent
from tpuctl.nodes import Node, SshKey, joined
from tpuctl.nodes.queued_resources import require_running
from tpuctl.parallel import fanout, values, within
from tpuctl.polling import poll, sleep

if TYPE_CHECKING:
    from tpuctl.cloud.endpoints import Cloud
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.nodes import NodeRequest


HINT = (
    "Create it with '--metadata enable-oslogin=FALSE'; or add your key to your OS Login profile "
    "('gcloud compute os-login ssh-keys add --key-file FILE.pub') and set ssh_user to the user name of that "
    "profile ('gcloud compute os-login describe-profile')."
)


def warning(provider: Provider, metadata: Mapping[str, str]) -> str:
    """Return what to know before a node with this metadata is created; empty where keys log in."""
    if not provider.ignores_ssh_keys(metadata):
        return ""
    return f"Warning: OS Login is on: hosts ignore the SSH key that tpuctl gives them. {HINT}"


def refusal(node: Node) -> HostError:
    """Return the error of a host that refuses a key because of OS Login."""
    return HostError(
        f"OS Login is on for '{node.name}': its hosts ignore the SSH key that tpuctl gave them.", hint=HINT
    )


def published_key(node: Node, host_keys: Mapping[int, str], worker: int) -> str:
    """Return a worker's published host key; raises HostError without one."""
    if worker not in host_keys:
        raise HostError(
            f"worker {worker} of '{node.name}': it has published no host key.",
            hint=f"It does when it boots: tpuctl wait {node.name}. If it never does, an organization policy "
            "may forbid guest attributes: --host-keys first-contact trusts the key that answers first.",
            host_key="missing",
        )
    return host_keys[worker]


SSH_TIMEOUT = 300.0
OS_LOGIN_PATIENCE = 30.0
"""Seconds for which a host of a project with OS Login may refuse a key that its profile has: it boots."""
KEY_ARRIVAL = 60.0
"""Seconds for which hosts may refuse a key that was just added."""
KEY_PAUSE = 1.0
LOOK_INTERVAL = 2.0
"""Seconds between looks at the node while its hosts do not answer, whatever their number."""


def grant_access(provider: Provider, ssh: Ssh, node: Node, key: SshKey, report: Report) -> Node:
    """Let a key log in, wait until every host runs a command, and return the node.

    Raises PreemptedError or StateError when the node ends meanwhile, HostError that names the worker,
    DeadlineError when hosts are not listed or do not publish their keys.
    """
    if provider.ssh_key_change(node, key) is None:
        return await_ssh(provider, ssh, node, key, report)
    return add_key(provider, node, key, report, lambda added: await_ssh(provider, ssh, added, key, report))


def add_key(
    provider: Provider, node: Node, key: SshKey, report: Report, await_arrival: Callable[[Node], object]
) -> Node:
    """Add a key to a node, call `await_arrival`, and return the node, which still has the key then.

    Another client that changes the metadata at the same time may overwrite a key that has arrived. The hosts
    learn of that seconds later: who connects at once gets in.
    """

    def added() -> Node | None:
        nonlocal node
        await_arrival(install_key(provider, node, key, report))
        node = require_running(provider.get_node(node.id))
        return node if provider.ssh_key_change(node, key) is None else None

    return poll(added, awaiting=f"'{node.name}' to keep the SSH key", timeout=SSH_TIMEOUT)


def install_key(provider: Provider, node: Node, key: SshKey, report: Report) -> Node:
    """Let a key log in on every host of a node, unless it may already; return the node with it.

    Keys of other users that are added at the same time stay: the metadata is read again until it has ours.
    """
    if provider.ssh_key_change(node, key) is None:
        return node
    report(f"adding your SSH key to {node.name}")
    changed = [
        change_metadata(
            provider, part, lambda current: provider.ssh_key_change(current, key), "to accept the SSH key"
        )
        for part in node.parts
    ]
    return require_running(joined(node.name, changed) if node.slices else changed[0])


def await_hosts(provider: Provider, node: Node, report: Report) -> Node:
    """Return a node once the provider lists all of its hosts, which may be some time after it is READY.

    Raises as `grant_access` does.
    """
    if not node.missing_hosts:
        return node
    report(f"waiting for the hosts of {node.name}: {node.missing_hosts}")

    def complete() -> Node | None:
        current = require_running(provider.get_node(node.id))
        return None if current.missing_hosts else current

    return poll(
        complete,
        awaiting=f"the addresses of all hosts of '{node.name}'",
        timeout=SSH_TIMEOUT,
        hint=f"See those that are listed: tpuctl describe {node.name}",
    )


def await_ssh(provider: Provider, ssh: Ssh, node: Node, key: SshKey, report: Report) -> Node:
    """Return the node once every host runs a command.

    Keys take seconds to arrive on the hosts, and a first boot takes longer. Raises as `grant_access` does.
    """
    node = await_hosts(provider, node, report)
    report(f"waiting for SSH on {len(node.addresses)} host{'s' if len(node.addresses) > 1 else ''}")
    keys = _host_keys(provider, node)
    watch = NodeWatch(provider, node, key, report)
    hosts = range(len(node.addresses))
    values(fanout(lambda worker: _await_worker(ssh, watch, worker, keys[worker]), hosts))
    return node


class NodeWatch:
    """Looks at the node while its hosts do not answer: it may have ended, or have lost our key."""

    def __init__(self, provider: Provider, node: Node, key: SshKey, report: Report) -> None:
        self.node = node
        self._provider = provider
        self._key = key
        self._report = report
        self._lock = threading.Lock()
        self._began = self._last = time.monotonic()

    def look(self, *, refused: bool) -> None:
        """Raise PreemptedError or StateError if the node has ended; add our key again if it is lost.

        `refused`: a host has refused our key. Raises HostError when it will go on to do so.
        """
        with self._lock:
            if time.monotonic() - self._last < LOOK_INTERVAL:
                return
            current = require_running(self._provider.get_node(self.node.id))
            is_lost = self._provider.ssh_key_change(current, self._key) is not None
            install_key(self._provider, current, self._key, self._report)
            self._last = time.monotonic()
            self._began = self._last if is_lost else self._began
            waited = self._last - self._began
            if refused and waited >= OS_LOGIN_PATIENCE and self._provider.ignores_ssh_keys(current.metadata):
                raise refusal(current)

    def may_come(self) -> bool:
        """Whether a host that refuses our key may accept it yet: looks and pauses first. Raises as `look`."""
        if time.monotonic() - self._began >= KEY_ARRIVAL:
            return False
        self.look(refused=True)
        sleep(KEY_PAUSE)
        return True


def patient_ssh(provider: Provider, ssh: Ssh, node: Node) -> Ssh:
    """Return SSH to a node that our key was added to, now or just before, and whose hosts may refuse it yet.

    Also while another client overwrites it: a host that knew it forgets it for seconds then.
    """
    return ssh.patient(NodeWatch(provider, node, ssh.login_key(), silent).may_come)


def _host_keys(provider: Provider, node: Node) -> Mapping[int, str]:
    def every_key() -> Mapping[int, str] | None:
        keys = provider.host_keys(node.id)
        if len(keys) == len(node.addresses):
            return keys
        require_running(provider.get_node(node.id))
        return None

    return poll(
        every_key,
        awaiting=f"the host keys of '{node.name}'",
        timeout=SSH_TIMEOUT,
        hint="They come with guest attributes. Where an organization policy forbids those, --host-keys "
        "first-contact trusts the key that answers first.",
    )


def _await_worker(ssh: Ssh, watch: NodeWatch, worker: int, host_key: str) -> None:
    reason = ""

    def runs_a_command() -> bool | None:
        nonlocal reason
        try:
            with ssh.connect(watch.node, worker, host_key) as session:
                exit_code = session.run(["true"]).exit_code
        except HostError as error:
            if "host_key" in error.facts:
                raise  # another attempt would only reach the impostor again
            reason = in_one_line(error)
            watch.look(refused="login" in error.facts)
            return None
        reason = f"'true' ended with exit code {exit_code}."
        return True if exit_code == 0 else None

    try:
        poll(runs_a_command, awaiting=f"SSH on worker {worker}", timeout=SSH_TIMEOUT)
    except DeadlineError as error:
        raise HostError(f"Worker {worker} of '{watch.node.name}' is not reachable: {reason}") from error


IAP_RANGE = "35.235.240.0/20"
"""From where IAP reaches hosts: https://cloud.google.com/iap/docs/using-tcp-forwarding"""


def opening_command(project: str, network: str) -> str:
    """Return the command that makes the firewall rule by which IAP reaches the hosts of a network."""
    return (
        f"gcloud compute firewall-rules create ssh-through-iap --project {project} "
        f"--network {network} --source-ranges {IAP_RANGE} --allow tcp:22"
    )


def require_way_in(cloud: Cloud, network: str, zone: str) -> str:
    """Return what could not be checked, as a sentence, or nothing; sends reads only.

    Raises ConfigError where the relay refuses the user, or no firewall rule lets it reach port 22.
    """
    name = network.rpartition("/")[2]
    try:
        cloud.check_relay(zone)
    except TpuctlError as error:
        raise type(error)(f"{error.message} Nothing was created.", hint=error.hint, **error.facts) from error
    try:
        rule = cloud.iap_firewall_rule(network)
    except TpuctlError as error:
        return f"Whether the firewall of {name} lets IAP in was not checked: {error.message}"
    if rule is None:
        raise ConfigError(
            f"Nobody could log in: no firewall rule of {name} lets IAP ({IAP_RANGE}) reach port 22, and the "
            "TPU would have no external address. Nothing was created.",
            hint=f"Make the rule: {opening_command(cloud.config.require('project'), name)}. "
            "Or, inside of the network, pass --no-iap.",
        )
    return ""


def outside_warning(cloud: Cloud, request: NodeRequest) -> str:
    """Return why perhaps nobody outside of its network can log in on a node; empty where a rule lets some in.

    Sends reads only, and says nothing where they are refused.
    """
    looked = within(lambda: _outside_warning(cloud, request))
    if isinstance(looked.error, NotFoundError):  # a network that does not exist
        return looked.error.message
    return looked.value or ""


def _outside_warning(cloud: Cloud, request: NodeRequest) -> str:
    name, account = request.network.rpartition("/")[2], request.service_account
    if cloud.is_ssh_open(request.network, request.tags, account):
        return ""
    project = cloud.config.require("project")
    return (
        f"No firewall rule of {name} lets machines outside of it reach port 22: perhaps nobody can log in, "
        f"and the TPU bills. Let yours in: gcloud compute firewall-rules create ssh --project {project} "
        f"--network {name} --allow tcp:22 --source-ranges YOUR_ADDRESS/32"
    )
