"""A simulator with nodes in it, a user with a key, and the Compute Engine API over plain HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User
from tpuctl.sim.records import Host

JSON = {"Content-Type": "application/json"}


class Site:
    """What the tests of this folder need of a running simulator."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self._folder = folder / "sim"
        self._options = options
        self.user = User(folder)
        self._running = RunningSimulator(self._folder, **options)

    @property
    def endpoints(self) -> dict[str, Any]:
        """What the simulator says about itself."""
        return self._running.simulator.endpoints

    def restart(self) -> None:
        """End the simulator and start another on the same folder."""
        self._running.close()
        self._running = RunningSimulator(self._folder, **self._options)

    def close(self) -> None:
        """End the simulator."""
        self._running.close()

    def create(self, node_id: str, accelerator: str = "v3-8", metadata: dict[str, str] | None = None) -> Any:
        """Create a node; its metadata has the user's key unless it is given."""
        return self.user.create(self.endpoints["tpu_grpc"], node_id, accelerator, metadata)

    def hosts(self, node_id: str) -> list[Host]:
        """Return the hosts of a node."""
        return list(self._running.world.nodes.get(f"{PARENT}/nodes/{node_id}").hosts())

    def run(self, address: str, command: str) -> str:
        """Run a command on a host."""
        return self.user.run(Path(self.endpoints["hosts_file"]), address, command)

    def refused(self, node: Any) -> None:
        """Fail the test unless the user's key is refused."""
        with pytest.raises(paramiko.AuthenticationException):
            self.run(node.network_endpoints[0].ip_address, "true")

    def compute(self, path: str, body: object = None, *, status: int = 200, method: str | None = None) -> Any:
        """Call the Compute Engine API and return its answer, or its error if that is the `status`."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        address = f"{self.endpoints['compute_rest']}/compute/v1/projects/{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            request = urllib.request.Request(address, data=data, headers=JSON, method=method)
            with opener.open(request, timeout=60) as answer:
                parsed, code = json.load(answer), answer.status
        except urllib.error.HTTPError as error:
            with error:
                parsed, code = json.load(error)["error"], error.code
        assert code == status, parsed
        return parsed

    def set_metadata(self, project: str = "sim-project", **metadata: str) -> Any:
        """Replace a project's metadata."""
        fingerprint = self.compute(project)["commonInstanceMetadata"]["fingerprint"]
        items = [{"key": key.replace("_", "-"), "value": value} for key, value in metadata.items()]
        body = {"fingerprint": fingerprint, "items": items}
        return self.compute(f"{project}/setCommonInstanceMetadata", body)
