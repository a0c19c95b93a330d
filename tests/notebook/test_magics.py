"""The magics without a kernel: what a line shows of the client behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import IPython.display
import pytest

from tpuctl.notebook import magics
from tpuctl.notebook.magics import Magics

BILLS_NOTHING = "[sim] simulated TPUs and storage on this machine: nothing bills\n"


class PlayedClient:
    """A client of some target that warns once; what was asked of it is kept."""

    def __init__(self, target: str, made: list[PlayedClient]) -> None:
        self.target = target
        self.limits: list[int] = []
        self.is_closed = False
        self._made = made

    def __call__(self, warn: Any) -> PlayedClient:
        self._made.append(self)
        warn("the bucket is far away")
        return self

    def nodes(self) -> str:
        return "the nodes"

    def runs(self, limit: int) -> str:
        self.limits.append(limit)
        return "the runs"

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("target", "said"), [("sim", BILLS_NOTHING), ("gcp", "")])
def test_a_notebook_says_once_that_nothing_bills_and_only_of_a_simulator(
    target: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[PlayedClient] = []
    shown: list[object] = []
    client = PlayedClient(target, made)
    monkeypatch.setattr(magics, "Client", client)
    monkeypatch.setattr(IPython, "display", SimpleNamespace(display=shown.append))
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", IPython.display)
    used = Magics()
    used.show_status("")
    used.show_status("  ")
    assert capsys.readouterr().out == f"Warning: the bucket is far away\n{said}"
    assert len(made) == 1
    assert shown == ["the nodes", "the runs"] * 2
    assert client.limits == [5, 5]
    used.close()
    assert client.is_closed
    used.show_status("")
    assert len(made) == 2, "a closed client is not used again"
    used.close()
