"""The rules of metadata: https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations."""

from __future__ import annotations

import re

from tpuctl.errors import UsageError
from tpuctl.nodes import NodeRequest

KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")
LARGEST = 256 << 10
"""Bytes of a value."""
MOST_METADATA = 512 << 10
"""Bytes of all keys and values."""
SSH_KEYS = "ssh-keys"
"""The metadata key that the hosts read, a line `USER:KEY` for each key."""
STARTUP_SCRIPT = "startup-script"
"""The metadata key whose value the hosts run at each boot."""
RESERVED = {
    SSH_KEYS: "tpuctl sets it to your key; add others on the host, or by their own 'tpuctl up'",
    "sshKeys": "it is the former name of ssh-keys, which tpuctl sets",
    STARTUP_SCRIPT: "pass the script by --startup-script FILE",
    "accelerator-type": "Google sets it",
    "agent-worker-number": "Google sets it",
    "instance-id": "Google sets it",
    "tpu-env": "Google sets it",
    "worker-network-endpoints": "Google sets it",
}
"""Key that a user cannot set -> why."""


def check_metadata(request: NodeRequest) -> None:
    """Raise UsageError for metadata that Google refuses, or that would replace what a host needs."""
    for key, value in request.metadata.items():
        if not KEY.fullmatch(key):
            raise UsageError(
                f"'{key}' cannot be a key of metadata.",
                hint="Use letters, digits, - and _, 128 at most.",
                metadata=key,
            )
        if key in RESERVED:
            raise UsageError(
                f"The metadata key '{key}' is reserved.", hint=f"{RESERVED[key].capitalize()}.", metadata=key
            )
        _check_value(f"The metadata value '{key}'", value)
    _check_value("The startup script", request.startup_script)
    _check_total(request)


def _check_value(subject: str, value: str) -> None:
    if _bytes(value) > LARGEST:
        raise UsageError(
            f"{subject} has {_bytes(value):,} bytes.",
            hint=f"A value has {LARGEST:,} at most: put the rest in the bucket, and read it from there.",
        )


def _check_total(request: NodeRequest) -> None:
    key = request.ssh_key
    items = {**request.metadata, SSH_KEYS: f"{key.user}:{key.public_key} {key.user}"}
    if request.startup_script:
        items[STARTUP_SCRIPT] = request.startup_script
    total = sum(_bytes(name) + _bytes(value) for name, value in items.items())
    if total > MOST_METADATA:
        raise UsageError(
            f"The metadata has {total:,} bytes in all.",
            hint=f"A TPU has {MOST_METADATA:,} at most, the SSH key and the startup script included.",
        )


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
