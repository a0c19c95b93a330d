"""A user's script: create a TPU and print its address. It does not know tpuctl."""

import sys

from google.api_core import exceptions
from google.cloud import tpu_v2

PARENT = "projects/sim-project/locations/europe-west4-a"


def main(name: str) -> None:
    client = tpu_v2.TpuClient()
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    try:
        created = client.create_node(parent=PARENT, node_id=name, node=node).result(timeout=600)
    except exceptions.ResourceExhausted as error:
        sys.exit(f"no TPU today: {error.message}")
    print(created.network_endpoints[0].ip_address)


if __name__ == "__main__":
    main(sys.argv[1])
