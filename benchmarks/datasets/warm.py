"""Work timed in a process that has imported all it needs: `tpuctl`, or an upload by `transfer_manager`.

python -m benchmarks.datasets.warm tpuctl ARGUMENTS...
python -m benchmarks.datasets.warm send FOLDER ENDPOINT PROJECT BUCKET PREFIX
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

COMMAND_IMPORTS = (
    "google_crc32c",
    "requests",
    "google.cloud.storage",
    "tpuctl.cli.datasets.upload",
    "tpuctl.cli.main",
    "tpuctl.cloud.simulator.process",
    "tpuctl.cloud.request_log",
    "tpuctl.cloud.storage",
    "tpuctl.data.sources.csv_files",
    "tpuctl.data.sources.folders",
    "tpuctl.data.plan",
    "tpuctl.flows.datasets.upload",
)
"""What `tpuctl data upload` imports when it is called."""


def main() -> None:
    """Run the role; print the seconds that took, imports left out."""
    role, *arguments = sys.argv[1:]
    work = {"tpuctl": command, "send": send}[role](arguments)
    began = time.perf_counter()
    work()
    print(json.dumps({"seconds": time.perf_counter() - began}))


def command(arguments: Sequence[str]) -> Callable[[], None]:
    """Import what `tpuctl data upload` does; return what runs it."""
    for module in COMMAND_IMPORTS:
        importlib.import_module(module)
    from tpuctl.cli.main import run  # noqa: PLC0415  each role imports what it needs, and no more

    def work() -> None:
        if code := run(list(arguments)):
            raise SystemExit(code)

    return work


def send(arguments: Sequence[str]) -> Callable[[], None]:
    """Import the client; return what uploads the files of a folder with it, several at once."""
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
    from google.cloud import storage  # noqa: PLC0415
    from google.cloud.storage import transfer_manager  # noqa: PLC0415

    folder, endpoint, project, bucket, prefix = arguments
    names = sorted(path.name for path in Path(folder).iterdir())

    def work() -> None:
        options = {"api_endpoint": endpoint}
        client = storage.Client(project, AnonymousCredentials(), client_options=options)
        results = transfer_manager.upload_many_from_filenames(
            client.bucket(bucket),
            names,
            source_directory=folder,
            blob_name_prefix=prefix,
            raise_exception=True,
        )
        assert len(results) == len(names)

    return work


if __name__ == "__main__":
    main()
