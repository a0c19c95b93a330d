"""A user's training loop: resumes from its last checkpoint, and writes one on SIGTERM."""

import json
import signal
import sys

from google.cloud import storage

EVERY = 100
STOP = []


def main(bucket: str, run: str, steps: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: STOP.append(True))
    checkpoint = storage.Client().bucket(bucket).blob(f"{run}/checkpoint.json")
    state = json.loads(checkpoint.download_as_text()) if checkpoint.exists() else {"step": 0, "weight": 0.0}
    print("from step", state["step"], flush=True)
    while state["step"] < steps and not STOP:
        state["weight"] -= 0.001 * 2 * (state["weight"] - 3.0)  # the gradient of (weight - 3)²
        state["step"] += 1
        if state["step"] % EVERY == 0 or STOP or state["step"] == steps:
            checkpoint.upload_from_string(json.dumps(state))
    print("to step", state["step"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
