"""Run the TPU check on good and bad emulated TPUs, or without a TPU; print a report as JSON.

PYTHONPATH=.:jobs python -m tests.jobs.programs.tpu_check FOLDER
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import tensorflow as tf
import tpu_check

QUICK = ["--seconds", "0.02"]
ONE_SIZE = ["--seconds", "0.00001"]
"""No machine is fast enough for more than the smallest product."""


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["TPUCTL_MODEL_DIR"] = str(folder)
    print(json.dumps(on_a_tpu(folder) if "TPUCTL_SIM_TPU" in os.environ else without_a_tpu(folder)))


def on_a_tpu(folder: Path) -> dict[str, Any]:
    """Check a good TPU, one that multiplies wrongly on replica 1, and one checked as if it were real."""
    with metadata_server("v3-8") as (address, requests):
        os.environ["GCE_METADATA_HOST"] = address
        good = check(folder, *QUICK)
    os.environ["TPU_ACCELERATOR_TYPE"] = "v3-8"
    honest, tf.matmul = tf.matmul, multiply_wrongly(tf.matmul)
    wrong = check(folder, *ONE_SIZE)
    tf.matmul = honest
    del os.environ["TPUCTL_SIM_TPU"]
    return {
        "good": good,
        "metadata_requests": requests,
        "wrong": wrong,
        "slow": check(folder, *QUICK),
        "one_replica": tpu_check.wrong_values([tpu_check.PRODUCT], 2),
        "too_fast": tpu_check.unlikely_speed({"share_of_peak": 1.5}, 0.5),
    }


def without_a_tpu(folder: Path) -> dict[str, Any]:
    """Check without a TPU, with and without --cpu; then with chips and without TPU_NAME."""
    report = {"none": check(folder, *QUICK), "cpu": check(folder, *QUICK, "--cpu")}
    chip = folder / "accel0"
    chip.touch()
    tpu_check.CHIP_FILES = (str(folder / "accel[0-9]*"),)
    report["chips"] = tpu_check.why_no_tpu(ValueError("no name"))
    os.environ["TPU_NAME"] = "local"
    report["held"] = tpu_check.why_no_tpu(
        RuntimeError("The TPU is already in use by process with pid 7\n...")
    )
    return report


def check(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the exit code, the output and result.json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = tpu_check.main(arguments)
    result = json.loads((folder / "result.json").read_text())
    return {"code": code, "printed": printed.getvalue(), "result": result}


def multiply_wrongly(multiply: Any) -> Any:
    """Return a matrix product that is 1 too large on replica 1."""

    def wrong(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        number = tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)
        return multiply(left, right) + tf.cast(number == 1, left.dtype)

    return wrong


@contextlib.contextmanager
def metadata_server(accelerator: str) -> Any:
    """Serve the accelerator type as a TPU VM's metadata server; yields its address and the requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.headers['Metadata-Flavor']} {self.path}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{accelerator}\n".encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main()
