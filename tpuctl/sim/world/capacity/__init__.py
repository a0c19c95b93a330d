"""The capacity of the simulated zones.

`availability`: the accelerator types and runtime versions that each zone offers. `capacity`: demand, quotas,
reservations, and whether a zone has capacity left (`Capacity.shortage`). An injected stockout comes from
`sim/world/injected_faults.py` instead.
"""
