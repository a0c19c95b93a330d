"""Reads the text of files that editors and shells of other systems have written."""

from __future__ import annotations

import codecs

from tpuctl.errors import ConfigError

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def text_of(content: bytes, source: str) -> bytes:
    """Return UTF-8 without its byte order mark; raises ConfigError for UTF-16, which names the `source`."""
    if content.startswith(UTF_16) and len(content) > len(UTF_16[0]):
        raise ConfigError(
            f"{source} is UTF-16, as PowerShell's > writes it; tpuctl reads UTF-8.",
            hint="Save it as UTF-8. In PowerShell: terraform output -json | Out-File -Encoding utf8 FILE",
        )
    return content.removeprefix(codecs.BOM_UTF8)
