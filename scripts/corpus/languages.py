"""Languages: codes, the mix table, and which script a language is written in."""

import os
import re

_HERE = os.path.dirname(os.path.abspath(__file__))

# Codes of Debian, LibreOffice and Firefox -> the code used here. A region that is not named here is cut off.
_ALIASES = {"c": "en", "zh-cn": "zh-hans", "zh": "zh-hans", "zh-tw": "zh-hant", "zh-hk": "zh-hant", "gug": "gn", "no": "nb"}

SCRIPTS = {
    "han": "\u3400-\u9fff", "arabic": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff", "devanagari": "\u0900-\u097f",
    "bengali": "\u0980-\u09ff", "gurmukhi": "\u0a00-\u0a7f", "gujarati": "\u0a80-\u0aff", "odia": "\u0b00-\u0b7f",
    "tamil": "\u0b80-\u0bff", "telugu": "\u0c00-\u0c7f", "kannada": "\u0c80-\u0cff", "malayalam": "\u0d00-\u0d7f",
    "cyrillic": "\u0400-\u04ff", "greek": "\u0370-\u03ff\u1f00-\u1fff", "hebrew": "\u0590-\u05ff", "thai": "\u0e00-\u0e7f",
    "japanese": "\u3040-\u30ff\u3400-\u9fff", "hangul": "\uac00-\ud7af", "khmer": "\u1780-\u17ff", "myanmar": "\u1000-\u109f",
    "georgian": "\u10a0-\u10ff", "armenian": "\u0530-\u058f", "ethiopic": "\u1200-\u137f", "sinhala": "\u0d80-\u0dff",
    "tibetan": "\u0f00-\u0fff", "olchiki": "\u1c50-\u1c7f",
}  # fmt: skip


class Language:
    def __init__(self, code, name, weight, script, must):
        self.code, self.name, self.weight, self.script, self.must = code, name, weight, script, must


def _rows(path, columns):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                row = line.rstrip("\n").split("\t")
                if len(row) != columns:
                    raise SystemExit(f"corpus: {path}:{number}: {len(row)} columns, expected {columns}, separated by tabs")
                yield row


class Mix:
    """The table mix.tsv: code -> Language; a code that it does not name gets the row "*"."""

    def __init__(self, path=os.path.join(_HERE, "mix.tsv")):
        self.languages = {
            row[0]: Language(row[0], row[1], float(row[2]), row[3], row[4] == "must") for row in _rows(path, 5)
        }

    def __getitem__(self, code):
        found = self.languages.get(code)
        other = self.languages["*"]
        return found or Language(code, code, other.weight, other.script, False)


def read_sources(path=os.path.join(_HERE, "sources.tsv")):
    """Rows of sources.tsv: (set, package, format, language, licence)."""
    return list(_rows(path, 5))


def language_of(code):
    """The code used here for a locale name such as pt_BR, zh-CN, ca@valencia or hi-in."""
    code = re.split(r"[@.]", code.replace("_", "-").lower())[0]
    if code in _ALIASES:
        return _ALIASES[code]
    return _ALIASES.get(code.split("-")[0], code.split("-")[0])
