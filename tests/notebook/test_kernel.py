"""Notebooks in a real kernel against the simulator: displays, live runs and `%%tpu`, all in one kernel."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from base64 import b64decode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

from tests.conftest import FOREIGN
from tests.data.events.files import event
from tests.display.test_markup import check_harmless
from tests.event_loops.thread import LoopThread
from tests.recipes.document import RECIPES
from tests.recipes.stage import lay_out
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

PATIENCE = 300
"""Seconds for a cell, on a machine that is busy."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Outputs:
    """What a cell has shown."""

    items: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """What was printed on stdout."""
        return "".join(item["text"] for item in self.items if item.get("name") == "stdout")

    @property
    def error(self) -> str:
        """The error as a notebook shows it, without colours; empty for a cell that succeeded."""
        errors = ["\n".join(item["traceback"]) for item in self.items if item["output_type"] == "error"]
        return _COLOUR.sub("", "\n".join(errors))

    @property
    def bundles(self) -> list[dict[str, str]]:
        """What was displayed, and the value of the cell, each as MIME type -> document."""
        return [item["data"] for item in self.items if "data" in item]

    @property
    def html(self) -> str:
        """Everything that was displayed as HTML."""
        return "".join(bundle.get("text/html", "") for bundle in self.bundles)

    @property
    def value(self) -> str:
        """The value of the cell as plain text."""
        (value,) = (item["data"] for item in self.items if item["output_type"] == "execute_result")
        return str(value["text/plain"])


class Kernel:
    """A kernel with an environment of its own; `close` ends it, whatever happened."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """Start it in `folder`; its sockets are files, so that it takes no port of another test's."""
        self._own = Path(tempfile.mkdtemp(prefix="k-"))  # short: so must be the names of sockets
        isolated = {
            name: str(self._own)
            for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
        }
        isolated["PYTHONDONTWRITEBYTECODE"] = "1"
        self.notebook = nbformat.v4.new_notebook()
        self._manager = AsyncKernelManager(
            kernel_name="python3", transport="ipc", ip=str(self._own / "s"),
            connection_file=str(self._own / "kernel.json"),
        )  # fmt: skip
        self._client = NotebookClient(
            self.notebook, km=self._manager, timeout=PATIENCE, startup_timeout=PATIENCE, allow_errors=True
        )
        self._thread = LoopThread()
        self._setup: AbstractAsyncContextManager[None] = self._client.async_setup_kernel(
            env={**environment, **isolated}, cwd=str(folder), cleanup_kc=True
        )
        try:
            self._wait(self._setup.__aenter__())
        except BaseException:
            self.close()
            raise

    def run(self, source: str) -> Outputs:
        """Execute a cell to its end."""
        cell, future = self._begin(source)
        future.result(PATIENCE)
        return Outputs(cell["outputs"])

    def interrupted(self, source: str, is_time: Callable[[Outputs], bool]) -> Outputs:
        """Execute a cell, and interrupt it as the stop button does once `is_time`."""
        cell, future = self._begin(source)
        poll(
            lambda: True if is_time(Outputs(list(cell["outputs"]))) else None,
            awaiting="what the cell shows", timeout=PATIENCE, backoff=Backoff(first=0.01, longest=0.1),
        )  # fmt: skip
        self._wait(self._manager.interrupt_kernel())
        future.result(PATIENCE)
        return Outputs(cell["outputs"])

    def _begin(self, source: str) -> tuple[dict[str, Any], Future[Any]]:
        cell = nbformat.v4.new_code_cell(source)
        self.notebook.cells.append(cell)
        place = len(self.notebook.cells) - 1
        return cell, self._thread.submit(self._client.async_execute_cell(cell, place))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(work).result(PATIENCE)

    def close(self) -> None:
        """End the kernel."""
        try:
            self._thread.finish(self._setup.__aexit__(None, None, None))
        finally:
            shutil.rmtree(self._own, ignore_errors=True)


MODULE = """
def greet(name):
    return f"hello {name}"
"""
FIRST = """%load_ext tpuctl
import tpuctl
client = tpuctl.Client()
client.up("v3-8", name="n1")
"""
GREETING = """%%tpu --name hello --env NAME=notebook -- world
import os, sys
from helper_of_notebook import greet
print(greet(os.environ["NAME"]))
print(greet(sys.argv[1]), os.environ["TPUCTL_WORKER"])
"""
WAITING = """%%tpu --name waiting --detach --env MARK={mark}
import os, time
print("begun", flush=True)
while not os.path.exists(os.environ["MARK"]):
    time.sleep(0.05)
"""
HOSTILE = "<script>alert(1)<"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebook is."""
    place = tmp_path_factory.mktemp("notebook")
    (place / "home").mkdir()
    (place / "helper_of_notebook.py").write_text(MODULE)
    return place


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    """The cloud of the notebook."""
    with Simulator() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def kernel(sim: Simulator, folder: Path) -> Iterator[Kernel]:
    """A kernel with a client, a node `n1`, and the extension."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    started = Kernel({**environment, **sim.environment, "HOME": str(folder / "home")}, folder)
    try:
        begun = started.run(
            "%load_ext tpuctl\nimport tpuctl\nclient = tpuctl.Client()\nclient.up('v3-8', name='n1')"
        )
        assert begun.error == ""
        assert "READY" in begun.html
        yield started
    finally:
        started.close()


def test_nodes_are_a_table_in_html_and_in_text(kernel: Kernel) -> None:
    shown = kernel.run("client.nodes()")
    check_harmless(shown.html)
    assert "</span> READY</td>" in shown.html
    assert shown.value.startswith("NAME")
    assert "n1" in shown.value


@pytest.fixture(scope="module")
def greeting(kernel: Kernel, sim: Simulator) -> Outputs:
    """What a cell has shown that ran on the TPU, for the tests that need a run."""
    before = submissions(sim)
    shown = kernel.run(GREETING)
    assert submissions(sim) == before + 2, "its code and its record"
    return shown


def test_a_cell_runs_as_a_job_and_its_output_comes_back(greeting: Outputs, folder: Path) -> None:
    assert greeting.error == ""
    lines = greeting.text.splitlines()
    assert "hello notebook" in lines
    assert "hello world 0" in lines
    assert [line for line in lines if line.startswith("hello: succeeded")]
    assert greeting.value == "<tpuctl.Run hello>"
    assert "succeeded" in greeting.html
    assert [path.name for path in folder.glob("tpu_cell*")] == [], "nothing is left in the notebook's folder"


def test_a_job_that_fails_is_an_error_without_the_stack_of_tpuctl(kernel: Kernel) -> None:
    shown = kernel.run("%%tpu --name failing\nprint('before')\nraise ValueError('no such luck')\n")
    assert "before\n" in shown.text
    assert 'tpu_cell.py", line 3' in shown.text, "the line of the cell"
    assert shown.error.startswith("JobFailedError: Run 'failing' failed: ")
    assert "Hint: " in shown.error
    assert "Traceback" not in shown.error
    assert "tpuctl/" not in shown.error
    assert kernel.run("client.run('failing').state").value == "'failed'"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        (
            "%%tpu --node n1\nif True\n    pass\n",
            "UsageError: The cell has a syntax error, line 2: expected ':'",
        ),
        ("%%tpu\n!ls\n", "commands of IPython"),
        (
            "%%tpu --nod n1\npass\n",
            "UsageError: %%tpu: unrecognized arguments: --nod n1.\nHint: Did",
        ),
        ("%%tpu --dataset missing\npass\n", "NotFoundError: "),
        ("%%tpu --node n2\npass\n", "NotFoundError: "),
        ("%%tpu --secret TOKEN=abc\npass\n", "UsageError: The notebook would keep the value of the secret"),
        ("%tpu --nod", "UsageError: %tpu takes no options"),
    ],
)
def test_what_cannot_run_is_said_before_anything_is_sent(
    kernel: Kernel, sim: Simulator, cell: str, error: str
) -> None:
    before = submissions(sim)
    shown = kernel.run(cell)
    assert error in shown.error
    assert "Traceback" not in shown.error
    assert submissions(sim) == before


def submissions(sim: Simulator) -> int:
    """How many objects of new runs were sent; hosts of earlier runs write none of these."""
    sent = [
        event
        for pattern in ("*/bundles/*", "*/run.json")
        for event in sim.events.find(kind="request", what="objects.create", resource=pattern)
    ]
    return len(sent)


def test_help_is_printed_and_nothing_runs(kernel: Kernel, sim: Simulator) -> None:
    before = submissions(sim)
    assert "--dependency PACKAGE" in kernel.run("%%tpu --help\nprint(1)\n").text
    assert "%%tpu runs a cell" in kernel.run("%tpu --help").text
    assert submissions(sim) == before


def test_an_interrupt_leaves_the_run_going_and_it_can_be_followed_again(kernel: Kernel, folder: Path) -> None:
    mark = folder / "mark"
    detached = kernel.run(WAITING.format(mark=mark))
    assert detached.value == "<tpuctl.Run waiting>"

    def has_begun(shown: Outputs) -> bool:
        return "begun" in shown.html

    shown = kernel.interrupted("end = client.run('waiting').follow()", has_begun)
    assert shown.error == (
        "InterruptedByUser: Interrupted; run 'waiting' keeps running.\n"
        "Hint: Come back: client.run('waiting').follow()"
    )
    assert kernel.run("client.run('waiting').state").value == "'running'"
    mark.touch()
    followed = kernel.run("end = client.run('waiting').follow()")
    assert followed.error == ""
    assert len(followed.bundles) == 1, "one display, which was updated"
    assert "succeeded" in followed.html
    assert kernel.run("end.succeeded").value == "True"


def test_the_magic_for_a_line_lists_tpus_and_runs(kernel: Kernel, greeting: Outputs) -> None:
    shown = kernel.run("%tpu")
    texts = [bundle["text/plain"] for bundle in shown.bundles]
    assert len(texts) == 2
    assert texts[0].startswith("NAME")
    assert texts[1].startswith("RUN")


def test_metrics_are_curves(kernel: Kernel, sim: Simulator) -> None:
    assert kernel.run("%%tpu --name trained\nprint('loss 0.25')\n").error == ""
    records = [event("loss", step, 1 / step) for step in range(1, 6)]
    endpoints = sim.endpoints
    with storage.Client(
        project=endpoints.project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": endpoints.storage},
    ) as uploader:
        blob = uploader.bucket(endpoints.bucket).blob("runs/trained/tensorboard/events.out.tfevents.1.h")
        blob.upload_from_string(b"".join(records))
    shown = kernel.run("client.run('trained').metrics()")
    check_harmless(shown.html)
    assert "<svg" in shown.html
    assert "loss: 1 at step 1, 0.2 at step 5" in shown.value


def test_names_from_strangers_are_text_and_never_markup(kernel: Kernel, folder: Path) -> None:
    for name in (HOSTILE, "cat"):
        (folder / "texts" / name).mkdir(parents=True)
        (folder / "texts" / name / "a.txt").write_text("<img src=x> \u202etext\n")
    shown = kernel.run("dataset = client.upload('texts', 'texts')\nfrom IPython.display import display\n"
                       "display(dataset, client.datasets(), dataset.info, dataset.head()[0])")  # fmt: skip
    assert shown.error == ""
    check_harmless(shown.html)
    assert "&lt;script&gt;alert(1)&lt;" in shown.html
    assert "&lt;img src=x&gt; \\u202etext" in shown.html


def test_the_contact_sheet_of_a_dataset_is_a_picture(kernel: Kernel, folder: Path) -> None:
    for name in ("cats", "dogs"):
        (folder / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), "red").save(folder / "pets" / name / "a.png")
    shown = kernel.run("client.upload('pets', 'pets').contact_sheet()")
    assert shown.value == "<2 pictures of pets: .save('FILE.png')>"
    (bundle,) = shown.bundles
    assert Image.open(BytesIO(b64decode(bundle["image/png"]))).size[0] > 2 * 128
    (folder / "rows.csv").write_text("x,y\n1,2\n3,4\n")
    refused = kernel.run("client.upload('rows', 'rows.csv').contact_sheet()")
    assert "UsageError: The dataset 'rows' holds no images." in refused.error


def test_the_notebook_of_the_recipes_runs(kernel: Kernel, folder: Path) -> None:
    lay_out(folder)
    cells = nbformat.read(RECIPES / "notebook.ipynb", as_version=4).cells
    shown = [kernel.run(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [outputs.error for outputs in shown if outputs.error] == []
    nodes, pictures, cell, training, metrics, runs, final = shown
    assert "notebook" in nodes.value
    assert "image/png" in pictures.bundles[0]
    assert "step 3\n" in cell.text
    assert "test accuracy 0.978" in training.html
    assert "none yet" in metrics.value
    assert "tpu-cell-" in runs.value
    assert "notebook" not in final.value
    assert (folder / ".demo" / "result" / "run.json").is_file()


def test_the_extension_can_be_unloaded_and_loaded_again(kernel: Kernel) -> None:
    assert kernel.run("%unload_ext tpuctl").error == ""
    assert "Cell magic `%%tpu` not found" in str(kernel.run("%%tpu\npass\n").items)
    assert kernel.run("%load_ext tpuctl").error == ""
    assert "READY" in kernel.run("%tpu").html
