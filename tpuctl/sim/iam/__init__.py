"""Access control of the simulated cloud: roles, policies with conditions, and who calls."""
