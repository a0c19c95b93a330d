"""Says sizes as people read them."""

from __future__ import annotations


def format_bytes(size: float) -> str:
    """Return a size in bytes with its unit: `1.2 MB` (powers of ten)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
