"""Run the TPU check on good and bad TPUs, emulated, or where there is none; print what it found, as JSON.

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
    """Check a TPU that is well, one that multiplies wrongly on replica 1, and one judged as if real."""
    with metadata_server("v3-8") as (address, asked):
        os.environ["GCE_METADATA_HOST"] = address
        good = check(folder, *QUICK)
    os.environ["TPU_ACCELERATOR_TYPE"] = "v3-8"
    honest, tf.matmul = tf.matmul, multiply_wrongly(tf.matmul)
    wrong = check(folder, *ONE_SIZE)
    tf.matmul = honest
    del os.environ["TPUCTL_SIM_TPU"]
    return {
        "good": good,
        "asked": asked,
        "wrong": wrong,
        "slow": check(folder, *QUICK),
        "one_replica": tpu_check.wrong_values([tpu_check.PRODUCT], 2),
        "too_fast": tpu_check.unlikely_speed({"share_of_peak": 1.5}, 0.5),
    }


def without_a_tpu(folder: Path) -> dict[str, Any]:
    """Check where no TPU is, asked for one or not; then where chips are and no TPU is named."""
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
    """Return the exit code, what was printed, and result.json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = tpu_check.main(arguments)
    result = json.loads((folder / "result.json").read_text())
    return {"code": code, "printed": printed.getvalue(), "result": result}


def multiply_wrongly(multiply: Any) -> Any:
    """Return a product of matrices that is 1 too large on replica 1."""

    def wrong(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        number = tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)
        return multiply(left, right) + tf.cast(number == 1, left.dtype)

    return wrong


@contextlib.contextmanager
def metadata_server(accelerator: str) -> Any:
    """Serve what a TPU VM's metadata server says of its type; yields the address, and the paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Metadata-Flavor']} {self.path}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{accelerator}\n".encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main()
