"""Holds what every call works with: configuration and clients, each built at its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.cloud import endpoints
from tpuctl.config import Config
from tpuctl.errors import ConfigError, DeadlineError, StateError

if TYPE_CHECKING:
    from tpuctl.flows.nodes.prices import Prices
    from tpuctl.flows.runs.evidence.witnesses import Witnesses

Warn = Callable[[str], None]
"""Takes a sentence that warns of something; called from any thread."""


def nothing() -> None:
    """Do nothing."""


class Context:
    """One client's configuration and connections; may be used by several threads at once."""

    def __init__(self, config: Config, warn: Warn, announce: Callable[[], None] = nothing) -> None:
        """Take `announce`, which is called before the first connection."""
        self.config = config
        self.warn = warn
        self._announce = announce
        self._lock = threading.Lock()
        self._cloud: endpoints.Cloud | None = None
        self._is_closed = False

    @property
    def cloud(self) -> endpoints.Cloud:
        """The clients of the target, whose simulator is started if that is needed.

        Raises StateError once this is closed.
        """
        with self._lock:
            if self._is_closed:
                raise StateError("This client is closed.", hint="Make another one.")
            if self._cloud is None:
                self._announce()
                self._cloud = endpoints.connect(self.config, self.warn)
            return self._cloud

    def now(self) -> datetime:
        """Return the time by which nodes are dated; where no server tells it, this machine's, and say so."""
        try:
            return self.cloud.server_time()
        except DeadlineError as error:
            self.warn(f"{error.message} Ages, ends and costs are by this machine's clock.")
            return clock.now()

    @cached_property
    def prices(self) -> Prices:
        """What TPUs cost: by the configuration, else by the provider's list, read when it is needed."""
        from tpuctl.flows.nodes.prices import Prices  # noqa: PLC0415  not every call needs a price

        return Prices(
            self.config.prices,
            lambda generation: self.cloud.read_rates(generation),
            lambda generation: self.cloud.kept_rates(generation),
        )

    @cached_property
    def witnesses(self) -> Witnesses:
        """Who can be asked about a run whose workers are silent."""
        from tpuctl.flows.runs.evidence.witnesses import Witnesses  # noqa: PLC0415  not every call asks

        return Witnesses(lambda: self.cloud.provider, lambda: self.cloud.ssh)

    @property
    def owner(self) -> str:
        """The account whose TPUs and runs are this user's own."""
        return self.config.require("owner")

    def require_chosen_project(self) -> None:
        """Raise ConfigError where only gcloud's own file names the project in which something is to bill."""
        if not self.config.is_project_chosen:
            raise self.unchosen_project(f"Name it: tpuctl.Client(project={self.config.require('project')!r})")

    def unchosen_project(self, hint: str) -> ConfigError:
        """Return the error of such a project."""
        project = self.config.require("project")
        return ConfigError(
            f"Only gcloud's configuration names project '{project}', and this may bill there.",
            hint=hint,
            project=project,
        )

    def from_flag(self, name: str) -> str | None:
        """Return a setting's value if it was passed to this client or command, else None."""
        return self.config.get(name) if self.config.values[name].origin == f"--{name}" else None

    def close(self) -> None:
        """Close the connections; every later use raises StateError."""
        with self._lock:
            self._is_closed, cloud, self._cloud = True, self._cloud, None
        if cloud:
            cloud.close()
