"""Configuration: layers of settings, the formats of their values, and the places they are read from."""

from __future__ import annotations

from tpuctl.config.layers import Config, load
from tpuctl.config.settings import Value

__all__ = ["Config", "Value", "load"]
