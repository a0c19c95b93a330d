"""Nodes of the simulated Cloud TPU.

`service`: the calls on nodes. `lifecycle`: which fields a request may set, each long-running operation from
its begin to its end with what it does to the node's hosts, and where a preemption happens.
"""
