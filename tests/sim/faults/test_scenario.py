"""Scenario files: what is wrong in one, and that the same one brings the same events."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage, tpu_v2

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, POLLING, tpu_client
from tpuctl.errors import UsageError
from tpuctl.faults import KINDS, load_scenario, read_scenario

SCENARIO = """
seed = {seed}

[[fault]]
kind = "stockout"
zone = "europe-west4-a"
probability = 0.5

[[fault]]
kind = "unavailable"
method = "GetNode"
probability = 0.3
when = "after"

[[fault]]
kind = "gcs-error"
method = "storage.objects.create"
object = "part-*"
status = 429
probability = 0.4
count = 5
"""
WRONG = {
    "seed = 1\n[[fault]]\nkind = 'stockout'\nzon = 'x'\n": "line 4: The fault 'stockout' has no zon.",
    "sed = 1": "line 1: a scenario has no 'sed'.",
    "seed = 'x'": "line 1: seed has to be a whole number, not 'x'.",
    "seed = ": "is not TOML: ",
    "\n[fault]\nkind = 'stockout'": "line 2: a fault is written [[fault]].",
    "[[fault]]\nzone = 'x'": "line 1: this fault has no kind.",
    "[[fault]]\nkind = 'stockout'\n\n[[fault]]\ncount = 1\nkind = 'stokout'": (
        "line 6: There is no kind of fault 'stokout'."
    ),
    "[[fault]]\nkind = 'stockout'\n# never\ncount = 0": (
        "line 4: count has to be a whole number of at least 1, not 0."
    ),
    "[[fault]]\nkind = 'stockout'\nduration = '2 weeks'": (
        "line 3: duration has to be a time such as 30, 500ms, 2m or 1h, not '2 weeks'."
    ),
    "[[fault]]\nkind = 'gcs-cut'": "line 1: The fault 'gcs-cut' needs bytes: bytes before the reset.",
    "[[fault]]\nkind = 'unavailable'\nmethod = 'CreatNode'": (
        "line 3: method: the fault 'unavailable' has no method 'CreatNode'."
    ),
    "[[fault]]\nkind = 'gcs-error'\nstatus = 600": "line 3: status has to be one of 400,",
    "[[fault]]\nkind = 'preemption'\nlog = '('": "line 3: log has to be a regular expression,",
    "[[fault]]\nkind = 'gcs-error'\nmethod = 'GetNode'": "line 3: method: the fault 'gcs-error' has no",
}
HINTS = {
    "zon": "Did you mean zone?",
    "sed": "Did you mean seed?",
    "CreatNode": "tpu.CreateNode",
    "stokout": "stockout",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_names_the_file_the_line_and_what_was_meant(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        load_scenario(path)
    assert raised.value.message.startswith(f"{path}")
    assert WRONG[text] in raised.value.message
    for wrong, hint in HINTS.items():
        if f"'{wrong}'" in raised.value.message or f"no {wrong}." in raised.value.message:
            assert hint in raised.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        load_scenario(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not text in UTF-8"):
        load_scenario(tmp_path / "binary.toml")


def test_the_example_of_every_kind_can_stand_in_a_scenario() -> None:
    for kind in KINDS.values():
        words = re.findall(r"--(\S+) ('[^']*'|\S+)", kind.example)
        lines = "\n".join(f'{name} = "{value.strip(chr(39))}"' for name, value in words)
        (fault,) = read_scenario(f'[[fault]]\nkind = "{kind.name}"\n{lines}').faults
        assert fault.kind == kind.name
        assert len(fault.options) == len(words) + 1


def rehearse(folder: Path, seed: int) -> list[tuple[str, ...]]:
    """Load the scenario into a new simulator, do the same things, and return what happened, without times."""
    running = RunningSimulator(folder)
    try:
        running.faults.load(read_scenario(SCENARIO.format(seed=seed)))
        endpoints = running.simulator.endpoints
        with tpu_client(endpoints["tpu_grpc"]) as tpu:
            for number in range(6):
                quietly(lambda number=number: create(tpu, f"n{number}"))
                for _ in range(3):
                    quietly(lambda number=number: tpu.get_node(name=f"{PARENT}/nodes/n{number}"))
        client = storage.Client(
            "sim-project", AnonymousCredentials(), client_options={"api_endpoint": endpoints["storage"]}
        )
        for number in range(10):
            blob = client.bucket("sim-project-tpuctl").blob(f"part-{number}")
            quietly(lambda blob=blob: blob.upload_from_string(b"1", retry=None))
        client.close()
        return [
            (event.service, event.kind, event.what, event.resource, event.detail)
            for event in running.events
            if event.what != "GetOperation"  # as often as the client asks
        ]
    finally:
        running.close()


def create(tpu: tpu_v2.TpuClient, name: str) -> None:
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    tpu.create_node(parent=PARENT, node_id=name, node=node).result(polling=POLLING)


def quietly(work: Callable[[], object]) -> None:
    with contextlib.suppress(exceptions.GoogleAPICallError):
        work()


def test_the_same_seed_brings_the_same_events_and_another_brings_others(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    first, again, other = (rehearse(tmp_path / f"sim{number}", seed) for number, seed in enumerate((7, 7, 8)))
    assert first == again
    assert first != other
    for kind in ("stockout", "unavailable", "gcs-error"):
        firings = [event for event in first if event[1:3] == ("fault", kind)]
        assert 0 < len(firings) < 18
