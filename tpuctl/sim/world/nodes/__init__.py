"""Nodes of the simulated Cloud TPU.

`service`: the calls on nodes. `specs`: which fields a request may set. `lifecycle`: each long-running
operation from its begin to its end, and where a preemption happens. `host_effects`: what an operation does
to the node's hosts.
"""
