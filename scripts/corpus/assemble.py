"""Extracted documents of one language -> clean, deduplicated train and validation files.

Rules, in order: lines are put into NFC and cleaned; lines of another language go (by script, by being English, by being in the English
text); a line of 32 bytes or more is kept the first time only; what is left is cut or merged into documents of a few hundred bytes to
8 KB; equal documents are kept once. The held-out documents are those with the smallest hash of their content, so that the choice depends
on nothing else.
"""

import hashlib
import json
import os
import re
import unicodedata

from languages import SCRIPTS

MAX_DOCUMENT = 8000  # bytes
MIN_DOCUMENT = 300  # shorter texts of one package are merged
DROP_DOCUMENT = 120  # what stays shorter than this is dropped
REPEAT_BYTES = 64  # shorter lines (headings) may come again
VALID_SHARE = 0.05  # at most this part of a language is held out

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff0-\uffff\ue000-\uf8ff]")
_LETTERS = re.compile(r"[^\W\d_]")
_WORDS = re.compile(r"[A-Za-z']+")
# Words that are frequent in English and rare in every other language of the corpus.
_ENGLISH = frozenset(
    "the of and that with this are you for from which will can should not when your have has been is it if then they these those was "
    "were would could must may any each into only also use used using all there where what how does".split()
)


def digest(text):
    return hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()


def clean_line(line, kind):
    """The line in NFC without control characters; white space folded in prose, kept in code. "" for a line that cannot be used."""
    if "\ufffd" in line:
        return ""
    if not line.isascii():
        line = unicodedata.normalize("NFC", line)
        try:
            line.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate
            return ""
    if kind == "code":
        return _CONTROL.sub("", line).rstrip()
    return " ".join(_CONTROL.sub("", line).split())


def is_english(line):
    words = _WORDS.findall(line.lower())
    hits = sum(word in _ENGLISH for word in words)
    return hits >= 2 and hits * 6 >= len(words)


class LineFilter:
    """Tells whether a clean prose line is text of the language."""

    def __init__(self, language, english):
        self.english = english
        self.latin = language.script == "latin"
        pattern = SCRIPTS.get(language.script)
        self.native = re.compile(f"[{pattern}]") if pattern else None

    def __call__(self, line):
        letters = len(_LETTERS.findall(line))
        if letters < 2:
            return False
        if self.native:
            # Marks count as native but not as letters, which only helps the scripts that use them.
            return len(self.native.findall(line)) * 3 >= letters
        if self.latin:
            return not (is_english(line) or (len(line) >= 12 and digest(line) in self.english))
        return True


def read_extracted(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            yield record["kind"], record["lines"]


def cut(lines, kind):
    """Cuts the lines of one text into pieces of at most MAX_DOCUMENT bytes; in code, at an empty line where there is one."""
    piece, size = [], 0
    for line in lines:
        length = len(line.encode("utf-8")) + 1
        full = size + length > MAX_DOCUMENT
        if piece and (full or (kind == "code" and size > MAX_DOCUMENT * 3 // 4 and not line)):
            yield "\n".join(piece).strip("\n"), size
            piece, size = [], 0
        if length <= MAX_DOCUMENT:
            piece.append(line)
            size += length
    if piece:
        yield "\n".join(piece).strip("\n"), size


def documents(paths, language, english):
    """All documents of a language in a fixed order; `paths` are the extracted files, in the order of the source table."""
    keep = LineFilter(language, english)
    seen_lines, seen_documents = set(), set()
    for path in paths:
        waiting, waiting_size, kind = [], 0, "prose"
        for kind, raw in read_extracted(path):
            lines = []
            for line in raw:
                line = clean_line(line, kind)
                if kind == "code":
                    if line or (lines and lines[-1]):
                        lines.append(line)
                    continue
                if not line or not keep(line):
                    continue
                if kind == "strings" or len(line.encode("utf-8")) >= REPEAT_BYTES:
                    mark = digest(line)
                    if mark in seen_lines:
                        continue
                    seen_lines.add(mark)
                lines.append(line)
            waiting += lines
            waiting_size += sum(len(line.encode("utf-8")) + 1 for line in lines)
            if waiting_size >= MIN_DOCUMENT:
                yield from _unique(cut(waiting, kind), seen_documents)
                waiting, waiting_size = [], 0
        if waiting:
            yield from _unique(cut(waiting, kind), seen_documents)


def _unique(pieces, seen):
    for text, size in pieces:
        if size < DROP_DOCUMENT:
            continue
        mark = digest(text)
        if mark not in seen:
            seen.add(mark)
            yield text


def english_lines(texts):
    """Marks of the lines of the English documents, against which other languages are compared."""
    return {digest(line) for text in texts for line in text.split("\n") if len(line) >= 12}


def split(texts, valid_bytes):
    """(train, valid): documents by the hash of their content; the first of them, up to valid_bytes, are held out (one at least)."""
    order = sorted(texts, key=lambda text: hashlib.sha256(text.encode("utf-8")).digest())
    total = sum(len(text.encode("utf-8")) for text in order)
    room = min(valid_bytes, int(total * VALID_SHARE))
    train, valid = [], []
    for text in order:
        size = len(text.encode("utf-8"))
        if len(order) > 1 and (size <= room or not valid and size <= 4 * room):
            valid.append(text)
            room -= size
        else:
            train.append(text)
    return train, valid


def write_documents(path, texts):
    """Writes one {"text": …} a line under another name, then renames. Returns the bytes of text."""
    total = 0
    with open(path + ".part", "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            total += len(text.encode("utf-8"))
    os.replace(path + ".part", path)
    return total
