"""A corpus of text that would steer a terminal or mislead its reader, and of text that only looks unusual."""

from __future__ import annotations

import re

ESCAPES = {
    "title": "\x1b]0;owned\x07",
    "title without an end": "\x1b]2;owned",
    "clipboard": "\x1b]52;c;Y3VybCBldmlsfHNo\x07",
    "hyperlink": "\x1b]8;;https://example.com\x1b\\click\x1b]8;;\x1b\\",
    "clear the screen": "\x1b[2J\x1b[H",
    "colour": "\x1b[31;1mred",
    "conceal": "\x1b[8mhidden",
    "cursor": "\x1b[1A\x1b[2K",
    "report": "\x1b[6n\x1b[c",
    "alternate screen": "\x1b[?1049h",
    "reset": "\x1bc",
    "character set": "\x1b(0\x0e",
    "DCS": '\x1bP$q"p\x1b\\',
    "APC": "\x1b_Ga=T;AAAA\x1b\\",
    "PM": "\x1b^private\x1b\\",
    "SOS": "\x1bXstring\x1b\\",
    "8-bit CSI": "\x9b31mred",
    "8-bit OSC": "\x9d0;owned\x9c",
    "8-bit DCS": "\x90q\x9c",
    "8-bit APC": "\x9fG\x9c",
    "next line": "\x85",
    "bell, backspace, delete": "\x07\x08\x7f",
    "vertical tab, form feed": "\x0b\x0c",
    "overwrite": "rm -rf /\rharmless",
    "new line": "a\nError: forged",
    "line separators": "a\u2028b\u2029c",
    "bidirectional override": "\u202etxt.exe\u202c",
    "bidirectional isolate": "\u2066\u2067x\u2069",
    "zero width": "ad\u200bmin\u2060\ufeff",
    "joiner in a Latin word": "ad\u200dmin",
    "soft hyphen": "ad\u00admin",
    "tags": "\U000e0069\U000e0067\U000e006e",
    "Hangul filler": "\u3164",
    "variation selectors": "a\ufe00\U000e0101\U000e0102",
    "lone surrogate": "\udc9b31m",
    "piled marks": "z" + "\u0335" * 40,
    "null": "a\x00b",
    "markup": "[link=https://example.com]click[/link][bold]x\x1b[0m",
}
LEGITIMATE = {
    "German": "größer als ß",
    "Vietnamese, decomposed": "Tie\u0302\u0301ng Vie\u0323\u0302t",
    "Russian": "обучение",
    "Greek": "εκπαίδευση",
    "Japanese": "猫と犬、ガ\uff76\uff9e",
    "Chinese with a variant": "葛\U000e0100城",
    "Korean": "고양이",
    "Hebrew with a mark": "שלום\u200f!",
    "Arabic with vowels": "مَرْحَبًا",
    "Persian with joiners": "می\u200cخواهم",
    "Hindi with joiners": "क्\u200dष",
    "Tamil": "பூனை",
    "Thai": "ที่นี่",
    "Khmer with word breaks": "ខ្ញុំ\u200bស្រឡាញ់",
    "emoji": "🚀 done ✅ 👍🏽",
    "emoji family": "👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈",
    "keycap": "1\ufe0f\u20e3 #\ufe0f\u20e3",
    "flags": "🇩🇪 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "mathematics": "∀x∈ℝ: ⌈x⌉ ≥ x × 1",
    "progress bar": "50%|█████▏    | 5/10",
    "private use": "\ue0b0 branch",
}
"""Names of languages and forms -> text that stays as it is."""

_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\u200b\u2060\ufeff\xad\ud800-\udfff\U000e0000-\U000e001f]"
)


def steers(text: str) -> bool:
    """Return whether a text that is shown has a character that steers a terminal or reorders the text."""
    return _STEERING.search(text) is not None
