"""A bucket, an API, a folder and an environment that hold hostile text wherever a command reads some."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
from PIL import Image

from tests.cli.pseudo_terminal import in_terminal
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS
from tests.forks import commands
from tests.hostile.names import NAMES
from tests.hostile.text import ESCAPES
from tests.paths import RECORDED_OUTPUT
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, encode
from tpuctl.runs import Run, Verdict

VISIBLE = r"\x1b]0;owned\x07"
"""The corpus's first sequence, as it is shown."""
TEXT = "".join(ESCAPES.values()).replace("\udc9b", "")
"""What JSON can hold."""
LABEL = TEXT[:250]
WORD = ESCAPES["title"] + ESCAPES["8-bit CSI"] + ESCAPES["bidirectional override"] + "x"
"""What a file, an object or an argument can be called."""
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# accelerator = "v3-8"\n# ///\n'


class HostileSite:
    """A simulator with hostile content, and a working folder; commands run as programs of their own."""

    def __init__(self, simulator: RunningSimulator, folder: Path) -> None:
        self.simulator = simulator
        self.folder = folder
        cloud = connect(load({}))
        try:
            _plant_runs(cloud.bucket)
            _plant_datasets(cloud.bucket)
        finally:
            cloud.close()
        _plant_files(folder)

    def call(self, *arguments: str, pauses: bool = True, **variables: str) -> tuple[int, bytes]:
        """Return the exit code and all that a command writes without a terminal."""
        return commands.call(*arguments, pauses=pauses, **variables)

    def call_in_terminal(self, *arguments: str, pauses: bool = True, **variables: str) -> str:
        """Return what a command shows on a terminal whose user declines."""
        return in_terminal(*arguments, columns=120, typed="n\n", pauses=pauses, **variables)

    def plant_node(self) -> None:
        """Create a node, and change what the API says of it."""
        assert self.call("up", "v3-8", "--name", "n1", "--yes")[0] == 0
        state = self.simulator.world.nodes._state  # no request can say what only the service writes
        (node,) = state.nodes.all()
        spec = {**node.spec, "runtimeVersion": WORD, "labels": {**node.spec.get("labels", {}), "a": WORD}}
        hostile = replace(node, spec=spec)

        async def save() -> None:
            state.save_node(hostile)

        self.simulator.call(save())


def _plant_runs(bucket: Bucket) -> None:
    record = Run(
        "r1", CREATED, LABEL, WORD, (TEXT,), "0" * 64, "jax", LABEL, (TEXT[:4000],), {TEXT[:4000]: TEXT}
    )
    for name in ("r1", "r2", "r3"):
        run = StoredRun(bucket, name)
        run.create(msgspec.structs.replace(record, run=name))
        attempt = run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0, 1)))
        for worker in (0, 1):
            bucket.upload(run.paths.log(1, worker, 1), [_log()], "text/plain")
            status = replace(STATUS, worker=worker, state=FINISHED, exit_code=1, error=TEXT)
            bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")
        assert attempt.number == 1
    StoredRun(bucket, "r1").end(Verdict("r1", "failed", 1, CREATED, TEXT[:4000], 1))
    for name in ("r1", "r2"):
        bucket.upload(f"runs/{name}/outputs/{WORD}", [b"x"], "text/plain")
    for name in NAMES.values():
        bucket.upload(f"runs/r3/outputs/{name}", [b"[core]\nfsmonitor = touch escaped\n"], "text/plain")
    for name in (WORD, *NAMES.values()):
        bucket.upload(f"runs/{name}/run.json", [b"{}"], "application/json")
    bucket.upload("runs/r4/run.json", [json.dumps({TEXT: TEXT}).encode()], "application/json")
    bucket.upload(f"runs/r1/attempts/{WORD}/attempt.json", [b"{}"], "application/json")


def _log() -> bytes:
    lines = [f"{escape}\n".encode("utf-8", "surrogateescape") for escape in ESCAPES.values()]
    return b"".join(lines) + b"\x9b31m\xff\xfe no UTF-8\n"


def _plant_datasets(bucket: Bucket) -> None:
    for folder in (f"{WORD}/1.0.0", f"bad/{WORD}", "bad/1.0.0"):
        content = json.dumps({TEXT: TEXT, "schema": 2}).encode()
        bucket.upload(f"datasets/{folder}/manifest.json", [content], "application/json")


def _plant_files(folder: Path) -> None:
    rows = [json.dumps({"text": TEXT, WORD: TEXT, "label": label}) for label in (TEXT, WORD, "plain")]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    for name in (WORD, "plain"):
        (folder / "images" / name).mkdir(parents=True)
        for shade in range(3):
            Image.new("L", (8, 8), shade).save(folder / "images" / name / f"{shade}.png")
    (folder / "images" / "plain" / f"{WORD}.png").write_bytes(b"no image")
    (folder / "job.py").write_text(f"{HEADER}print('x')\n")
    (folder / "header.py").write_text(HEADER.replace("[]", json.dumps([WORD])))
    (folder / f"{WORD}.py").write_text(HEADER)
    (folder / "scenario.toml").write_text(f"[[fault]]\nkind = {json.dumps(WORD)}\n")
    outputs = json.loads(RECORDED_OUTPUT.read_text())
    outputs["tpuctl"]["value"]["project"] = TEXT
    (folder / "outputs.json").write_text(json.dumps(outputs))
    (folder / "hostile").mkdir()
    (folder / "hostile" / "tpuctl.toml").write_text(
        f"project = {json.dumps(WORD)}\nzone = {json.dumps(WORD)}\n"
    )
    (folder / WORD / "sim" / WORD).mkdir(parents=True)
