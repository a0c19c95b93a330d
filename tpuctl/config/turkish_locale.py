"""Keeps Google's protobuf right in Turkish locales.

It derives the JSON names of fields by the C library's `toupper`, which leaves `i` alone where its capital has
a dot: `node_id` becomes `nodeid`, which no REST API knows. Python sets LC_CTYPE at its start.
"""

from __future__ import annotations

import locale

LANGUAGES = ("tr", "az", "crh", "tt")
"""Those with a dotted capital I."""


def use_plain_letters() -> None:
    """Have the C library treat letters as in English, before protobuf is imported; elsewhere do nothing."""
    name = locale.setlocale(locale.LC_CTYPE)
    if name.partition("_")[0] not in LANGUAGES:
        return
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        locale.setlocale(locale.LC_CTYPE, "C")
