"""Retrain every night: upload the new data, train through preemptions, and fail if the result is bad."""

import datetime
import sys
from contextlib import suppress
from pathlib import Path

import tpuctl
from tpuctl.errors import NotFoundError, TpuctlError

SCRIPT = Path(__file__).with_name("train.py")
WORST = 0.001
"""The largest loss that is good enough."""


def retrain(client: tpuctl.Client, data: Path, night: datetime.date, out: Path) -> float:
    """Train with the data of a night, bring the results into `out`, and return the last loss."""
    dataset = client.upload("nightly", data, version=f"{night.year}.{night.month}.{night.day}")
    try:
        node = client.up("v3-8", name="nightly", spot=True, ttl=datetime.timedelta(hours=3))
        run = client.submit(
            SCRIPT, name=f"nightly-{night}", node=node.name, dataset=f"nightly/{dataset.version}", restarts=3
        )
        for event in client.watch(run.name):  # starts it again after a preemption
            print(event.run, event.action, event.detail, flush=True)
        run.wait(check=True)
        run.pull(out)
        (line,) = run.logs(text="loss", tail=1)
        return float(line.text.split()[-1])
    finally:
        with suppress(NotFoundError):  # it was not created, or was replaced after a preemption
            client.down("nightly")


def main(data: str, out: str) -> int:
    """Return the exit code of the CI job: that of an error of tpuctl, or 1 for a bad result."""
    try:
        with tpuctl.Client() as client:
            loss = retrain(client, Path(data), datetime.date.today(), Path(out))
    except TpuctlError as error:
        print(error.message, error.hint, sep="\n", file=sys.stderr)
        return error.exit_code
    print(f"loss {loss}: {'good' if loss <= WORST else 'not good enough'}")
    return 0 if loss <= WORST else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
