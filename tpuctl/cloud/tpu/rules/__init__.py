"""The rules of Google Cloud for what a request names, checked before it is sent."""

from tpuctl.cloud.tpu.rules.creation import check_creation

__all__ = ["check_creation"]
