"""A user's program with mistakes that mypy has to see; each line that has one says which."""

from __future__ import annotations

from tpuctl import Client, Progress

with Client(target="sim") as client:
    client.up("v3-8", spto=True)  # Unexpected keyword argument "spto"
    client.up("v3-8", framework="caffe")  # Argument "framework"
    client.submit("train.py", restarts="twice")  # Argument "restarts"
    client.runs()[0].name = "other"  # Property "name" defined in "RunInfo" is read-only
    client.cost(by="zone")  # Argument "by"
    client.run("r1").pull(only=["log"])  # List item 0 has incompatible type
    print(Progress("text").steps)  # has no attribute "steps"
