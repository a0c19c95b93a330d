"""The network between programs and the simulator: ports, HTTP servers, TLS, the proxy and its routes."""
