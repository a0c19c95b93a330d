"""The capacity of the simulated zones.

`availability`: the accelerator types and runtime versions of each zone. `demand`: the capacity that a node
or a queued resource requests. `quotas`: where quota is checked. `reservations`: reserved capacity and its
use. `capacity`: whether a zone has capacity left. An injected stockout comes from
`sim/world/injected_faults.py` instead.
"""
