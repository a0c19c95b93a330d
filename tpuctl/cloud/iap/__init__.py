"""Our client of Identity-Aware Proxy's TCP relay: reaches port 22 of hosts without external addresses."""

from tpuctl.cloud.iap.frames import NO_INSTANCE
from tpuctl.cloud.iap.relay import Instance, Patience, Relay
from tpuctl.cloud.iap.tunnel import TunnelSocket, open_tunnel

__all__ = ["NO_INSTANCE", "Instance", "Patience", "Relay", "TunnelSocket", "open_tunnel"]
