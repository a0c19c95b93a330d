"""Queued resources of the simulated Cloud TPU.

`service`: the calls on them. `specs`: which fields a request may set. `provisioning`: the step from each
state to the next; `_provision` is where a queued resource becomes ACTIVE.
"""
