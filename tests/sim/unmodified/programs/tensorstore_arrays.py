"""tensorstore's gs:// as Orbax uses it on a TPU VM; prints what it saw as JSON."""

from __future__ import annotations

import json
import sys

import tensorstore as ts

ROOT = {"driver": "gcs", "bucket": "sim-project-tpuctl"}
spec = {"driver": "zarr3", "kvstore": {**ROOT, "path": "tensorstore/array/"}}
array = ts.open(spec, create=True, dtype=ts.int32, shape=[300, 200]).result()
array[...] = 7
array[5, 6] = 8
again = ts.open(spec).result()
store = ts.KvStore.open({**ROOT, "path": "tensorstore/"}).result()
stamp = store.write("a", b"1").result()
store.write("a", b"0", if_equal=store.read("nothing").result().stamp.generation).result()
value = store.read("a").result().value.decode()
store.write("a", b"2", if_equal=stamp.generation).result()
report = {
    "array": [int(again[5, 6].read().result()), int(again[299, 199].read().result())],
    "kept": value,
    "written": store.read("a").result().value.decode(),
    "listed": sorted(key.decode() for key in store.list().result()),
}
store.delete_range(ts.KvStore.KeyRange("", "")).result()
report["left"] = len(store.list().result())
json.dump(report, sys.stdout)
