"""A corpus of names that would lead out of a folder, pass for an option, or be run by another program."""

from __future__ import annotations

NAMES = {
    "parent": "../escaped",
    "parents": "a/../../../escaped",
    "absolute": "/tmp/escaped-absolute",
    "double slash": "//escaped",
    "home": "~/escaped",
    "git": ".git/config",
    "git below": "model/.git/hooks/post-checkout",
    "git in capitals": ".GIT/config",
    "git on NTFS": "git~1/config",
    "dotfile": ".bashrc",
    "envrc": ".envrc",
    "option": "-rf",
    "long option": "--upload-pack=touch escaped",
    "variable": "$(touch escaped)",
    "backticks": "`touch escaped`",
    "semicolon": "a;touch escaped",
    "drive": "C:\\escaped",
    "backslashes": "..\\..\\escaped",
    "percent": "%2e%2e/escaped",
    "percent twice": "%252e%252e%252fescaped",
    "overlong": "\u00c0\u00ae\u00c0\u00ae/escaped",
    "wide dots": "\uff0e\uff0e/escaped",
    "one-dot leader": "\u2024\u2024/escaped",
    "division slash": "..\u2215escaped",
    "300 characters": "n" * 300,
    "dots": "...",
    "trailing dot": "escaped.",
    "space": " ",
    "device": "NUL",
    "wildcard": "*",
}
"""What a name tries -> an object's name below a folder; Cloud Storage allows every one."""
