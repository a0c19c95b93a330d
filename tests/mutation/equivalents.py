"""Mistakes that change no behaviour, each with the reason: no test can catch them."""

from __future__ import annotations

from tests.mutation.mutants import Mutant

EQUIVALENTS: dict[tuple[str, str, str], str] = {
    # file, line as it was, line with the mistake: why both do the same
    ("tpuctl/data/trees/objects.py", "if file.size <= PART:", "if file.size < PART:"): (
        "a file of one part is read by one request in either branch"
    ),
    ("tpuctl/data/files/rows.py", "if len(files) <= _OPEN:", "if len(files) < _OPEN:"): (
        "files that stay open and files that are opened for each read have the same bytes"
    ),
    (
        "tpuctl/sim/fault_executor.py",
        'self.nodes[run] = max(self.nodes.get(run, (0, "")), (int(attempt), uid))',
        'self.nodes[run] = max(self.nodes.get(run, (1, "")), (int(attempt), uid))',
    ): "attempts are counted from 1, and the id of a node is not empty",
    (
        "tpuctl/data/sources/annotated/webdataset.py",
        "if len(batch) >= _MOST_AT_ONCE or size > _LARGEST_BATCH:",
        "if len(batch) >= _MOST_AT_ONCE or size >= _LARGEST_BATCH:",
    ): "batches of any size give the same samples, and one byte is no difference to memory",
    ("tpuctl/sim/gcs/storage/store.py", "@lru_cache(maxsize=64)", "@lru_cache(maxsize=640)"): (
        "a cache that holds more gives the same matrices"
    ),
    (
        "tpuctl/sim/gcs/storage/store.py",
        "one_bit: Matrix = (POLYNOMIAL, *(1 << bit for bit in range(31)))",
        "one_bit: Matrix = (POLYNOMIAL, *(1 << bit for bit in range(310)))",
    ): "a register has 32 bits, so no column after the 32nd is ever added",
    (
        "tpuctl/sim/iam/callers.py",
        'return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None',
        'return (host.strip(\'[]x\'), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None',
    ): "the number of a host has no x",
    ("tpuctl/printable.py", 'if "\\r" in text:', "if '' in text:"): (
        "a text without a carriage return is its own only state"
    ),
    (
        "tpuctl/data/tfrecord/texts.py",
        "if int(self.sizes.max(initial=0)) < 8:",
        "if int(self.sizes.max(initial=1)) < 8:",
    ): "the longest of no texts is shorter than eight bytes either way",
    ("tpuctl/data/sources/registry.py", "longest = 1", "longest = 2"): (
        "texts of one or two bytes: 64 MiB hold more rows of them than are ever read at once"
    ),
    (
        "tpuctl/cli/output.py",
        "if columns is None or _total(natural) <= columns:",
        "if columns is None or _total(natural) < columns:",
    ): "a table that just fits is folded nowhere in either branch",
    (
        "tpuctl/flows/datasets/analysis.py",
        'return "/".join(local_parts(name))',
        "return ''.join(local_parts(name))",
    ): "the name has no slash any more, so it is one part",
    (
        "tpuctl/data/trees/local.py",
        "if abs(int(last) - int(first)) >= _MOST:",
        "if abs(int(last) - int(first)) > _MOST:",
    ): "one number too many is refused with the same error when all names are counted",
    (
        "tpuctl/sim/__main__.py",
        "while not stop.is_set() and not (idle and simulator.idle_for() > idle):",
        "while not stop.is_set() and not (idle and simulator.idle_for() >= idle):",
    ): "the difference of two readings of a clock is never exactly a number of seconds",
}


def reason(mutant: Mutant, source: str) -> str:
    """Return why a mistake changes no behaviour; empty if it may."""
    before, after = (text.splitlines()[mutant.line - 1].strip() for text in (source, mutant.applied(source)))
    return EQUIVALENTS.get((mutant.file, before, after), "")
