"""Train with three learning rates at once, each on a TPU of its own, and print the best."""

import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import tpuctl
from tpuctl.errors import NotFoundError

SCRIPT = Path(__file__).with_name("train.py")
RATES = (0.003, 0.03, 0.3)


def train(client: tpuctl.Client, name: str, rate: float, stop: tpuctl.Stop) -> float:
    """Train with one learning rate, and return the last loss; the TPU is deleted whatever happens."""
    try:
        node = client.up("v3-8", name=name, spot=True, ttl=timedelta(hours=2), stop=stop)
        run = client.submit(SCRIPT, ["--rate", str(rate)], name=name, node=node.name, stop=stop)
        run.wait(check=True, stop=stop)
        (line,) = run.logs(text="loss", tail=1)
        return float(line.text.split()[-1])
    finally:
        with suppress(NotFoundError):  # it was not created
            client.down(name)


def sweep(client: tpuctl.Client) -> dict[float, float]:
    """Return the loss of each rate; the first failure, and Ctrl-C, stop the others."""
    stop, began = tpuctl.Stop(), time.strftime("%Y%m%d-%H%M%S")
    with ThreadPoolExecutor(len(RATES)) as pool:
        names = [f"sweep-{began}-{number}" for number in range(len(RATES))]
        losses = [pool.submit(train, client, name, rate, stop) for name, rate in zip(names, RATES)]
        try:
            for loss in as_completed(losses):
                loss.result()
        except BaseException:
            stop.set()
            raise
    return {rate: loss.result() for rate, loss in zip(RATES, losses)}


if __name__ == "__main__":
    with tpuctl.Client() as opened:
        results = sweep(opened)
    for rate, loss in results.items():
        print(f"rate {rate}: loss {loss}")
    print("best:", min(results, key=lambda rate: results[rate]))
