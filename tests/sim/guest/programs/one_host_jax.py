"""JAX as users write it on a TPU VM of one host; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys

import jax
import jax.numpy as jnp


def join(coordinator: str) -> None:
    """Join a slice of one by its address, without asking the metadata server."""
    jax.distributed.initialize(coordinator, 1, 0, cluster_detection_method="deactivate")


def refusal(coordinator: str) -> str:
    """Return the error of joining a slice of one at an address that is in use."""
    try:
        join(coordinator)
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def main() -> None:
    used_port, free = sys.argv[1:]
    report = {"refused": refusal(f"localhost:{used_port}")}
    join(f"localhost:{free}")
    report |= {
        "devices": jax.device_count(),
        "platforms": sorted({device.platform for device in jax.devices()}),
        "sum": float(jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(jnp.arange(jax.device_count()))[0]),
        "left": sorted({"JAX_FORCE_TPU_INIT", "TPU_SKIP_MDS_QUERY"} & set(os.environ)),
    }
    jax.distributed.shutdown()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
