"""The simulator: servers that speak the Cloud TPU API, Cloud Storage, the metadata server and SSH.

`simulator.py` builds and starts them all. Where to look:

- the environment of a host's programs: `client_environment.py` (proxy, certificates, TPU), joined in
  `hosts/host.py`, with a login's variables from `hosts/programs/login.py`;
- a preemption: `fault_executor.py` begins it, `world/nodes/lifecycle.py` changes the node's state,
  `hosts/pool.py` (`HostPool.stop`) ends the host's processes by `hosts/programs/processes.py`;
- a fault that a request meets: `faults.py` (`FaultRegistry.fire`), called in
  `world/injected_faults.py` for the Cloud TPU API and in `gcs/request_faults.py` for Cloud Storage; the
  kinds are in `tpuctl/faults/kinds.py`.
"""
