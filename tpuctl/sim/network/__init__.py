"""How programs reach the simulator: ports, TLS, the proxy and its tunnels."""
