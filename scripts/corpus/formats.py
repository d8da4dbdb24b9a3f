"""Readers: the bytes of one file of a package -> documents, each a list of lines (a line is a paragraph where the format tells)."""

import ast
import gzip
import html
import io
import os
import re
import struct
import zipfile

STRINGS_BYTES = 2000  # interface strings and sayings are collected into documents of about this size
MIN_STRING_LETTERS, MIN_STRING_BYTES = 12, 20  # shorter strings are labels of buttons and the like (bytes: for Chinese and Japanese)

# A byte-per-code-point letter of these scripts glues to its neighbour without a space.
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]")


def join_lines(parts):
    """Joins hard-wrapped lines: by a space, or by nothing between two CJK letters."""
    out = ""
    for part in parts:
        part = part.strip()
        if not part:
            continue
        glue = "" if not out or (_CJK.match(out[-1]) and _CJK.match(part[0])) else " "
        out += glue + part
    return out


def decode(data):
    """UTF-8 text, or None where the bytes are something else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def gunzip(name, data):
    return gzip.decompress(data) if name.endswith(".gz") else data


# --- HTML and Mallard -------------------------------------------------------------------------------------------------

_DROP = re.compile(
    r"<!--.*?-->|<(head|script|style|noscript|header|aside|nav|footer|button|select|svg|info)\b[^>]*>.*?</\1\s*>"
    r"|<div class=\"(?:toc|navheader|navfooter)\">.*?</div>",
    re.S | re.I,
)
_PRE = re.compile(r"<(pre|screen|code style=\"block\")\b[^>]*>(.*?)</(?:pre|screen|code)>", re.S | re.I)
_BLOCK = re.compile(
    r"</?(?:p|div|h[1-6]|li|ul|ol|tr|td|th|table|thead|tbody|br|hr|dt|dd|dl|section|article|blockquote|title|subtitle|desc|item|"
    r"note|steps|list|terms|media|figure|synopsis|body|page|links|hdr)\b[^>]*>",
    re.I,
)
_TAG = re.compile(r"<[!?/A-Za-z][^>]*>")


def markup_lines(text):
    text = _DROP.sub(" ", text)
    # Line ends and indents inside <pre> live through the folding of white space as two private code points.
    text = _PRE.sub(lambda m: "<p>" + _TAG.sub("", m.group(2)).replace("\n", "\ue000").replace(" ", "\ue001") + "</p>", text)
    text = re.sub(r"\s+", " ", text)
    text = text.replace("</key><key>", "+").replace("</gui><gui>", " > ").replace("</gui> <gui>", " > ")
    text = _TAG.sub("", _BLOCK.sub("\n", text))
    text = html.unescape(text)
    for line in text.split("\n"):
        for piece in line.strip().split("\ue000"):
            yield piece.replace("\ue001", " ").rstrip()


def read_html(name, data):
    text = decode(gunzip(name, data))
    if text:
        start = text.find('<div id="DisplayArea"')  # LibreOffice help: what comes before is navigation
        yield list(markup_lines(text[start:] if start >= 0 else text))


# --- manual pages -----------------------------------------------------------------------------------------------------

_GLYPHS = {
    "em": "—", "en": "–", "bu": "•", "aq": "'", "dq": '"', "oq": "‘", "cq": "’", "lq": "“", "rq": "”", "co": "©", "bv": "|",
    "ha": "^", "ti": "~", "ga": "`", "rs": "\\", "mu": "×", "di": "÷", "+-": "±", "->": "→", "<-": "←", "<=": "≤", ">=": "≥",
    "hy": "-", "ba": "|", "at": "@", "sh": "#", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "Fo": "«", "Fc": "»", "ss": "ß",
    "mc": "µ", "de": "°", "sq": "□", "la": "⟨", "ra": "⟩", "rg": "®", "tm": "™", "!=": "≠", "if": "∞", "mi": "−", "eq": "=",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:f(?:\[[^]]*\]|\(..|.)|\[([^]]*)\]|\((..)|\*\[([^]]*)\]|\*\((..)|\*(.)|[mMF]\[[^]]*\]|s[-+]?\d+|s\[[^]]*\]"
    r"|[hvwN]'[^']*'|(.))"
)
_PLAIN = {"-": "-", "e": "\\", "\\": "\\", " ": " ", "~": " ", "0": " ", "'": "'", "`": "`", "t": " ", ".": "."}
_BREAKS = {"PP", "P", "LP", "TP", "IP", "HP", "TQ", "RS", "RE", "sp", "br", "ti", "in", "ne"}
_ALTERNATE = {"BR", "RB", "IR", "RI", "BI", "IB"}
_SKIPPED = {"TS": ".TE", "ig": "..", "de": "..", "de1": "..", "am": "..", "EQ": ".EN", "PS": ".PE"}


def _escape(match):
    bracket, paren, s1, s2, s3, plain = match.groups()
    glyph = bracket or paren
    if glyph:
        unicode = re.fullmatch(r"u([0-9A-Fa-f]{4,6})", glyph)
        return chr(int(unicode.group(1), 16)) if unicode else _GLYPHS.get(glyph, "")
    string = s1 or s2 or s3
    if string:
        return {"lq": "“", "rq": "”", "Aq": "'", "R": "®", "Tm": "™"}.get(string, "")
    return _PLAIN.get(plain, "") if plain else ""


def _roff(text):
    comment = re.search(r'(?<!\\)\\["#]', text)
    return _ESCAPE.sub(_escape, text[: comment.start()] if comment else text)


def _arguments(text):
    return [a[1:-1].replace('""', '"') if a.startswith('"') else a for a in re.findall(r'"(?:[^"]|"")*"|(?:\\.|[^\s"\\])\S*', text)]


def read_man(name, data):
    text = decode(gunzip(name, data))
    if not text or re.search(r"^\.Dd\b", text, re.M):  # mdoc pages are another language, and few
        return
    lines, paragraph, verbatim, skip_to = [], [], False, None

    def flush():
        if paragraph:
            lines.append(join_lines(paragraph))
            paragraph.clear()

    for raw in text.split("\n"):
        if skip_to:
            if raw.rstrip() == skip_to:
                skip_to = None
            continue
        if raw.startswith(".") or raw.startswith("'"):
            match = re.match(r"[.']\s*([A-Za-z][A-Za-z0-9]*)\s*(.*)", raw)
            if not match:
                continue
            macro, rest = match.groups()
            if macro in _SKIPPED:
                flush()
                skip_to = _SKIPPED[macro]
            elif macro in ("SH", "SS"):
                flush()
                verbatim = False
                lines.append(_roff(" ".join(_arguments(rest))))
            elif macro in ("nf", "EX"):
                flush()
                verbatim = True
            elif macro in ("fi", "EE"):
                verbatim = False
            elif macro in _BREAKS:
                flush()
                if macro == "IP" and rest:
                    paragraph.append(_roff(_arguments(rest)[0] if _arguments(rest) else ""))
            elif macro in ("B", "I", "R", "SM", "SB") or macro in _ALTERNATE:
                words = _roff(("" if macro in _ALTERNATE else " ").join(_arguments(rest)))
                (lines if verbatim else paragraph).append(words)
            elif macro in ("UR", "MT") and not verbatim:
                paragraph.append(_roff(rest))
        elif verbatim:
            lines.append(_roff(raw).rstrip())
        elif not raw.strip():
            flush()
        else:
            if raw[0] in " \t":
                flush()
            paragraph.append(_roff(raw))
    flush()
    yield lines


# --- collections of short texts ---------------------------------------------------------------------------------------


def collect(strings, size=STRINGS_BYTES):
    """Groups lists of lines into documents of about `size` bytes, in the order given."""
    lines, total = [], 0
    for group in strings:
        lines += group
        total += sum(len(line.encode("utf-8", "replace")) for line in group)
        if total >= size:
            yield lines
            lines, total = [], 0
    if lines:
        yield lines


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read_fortune(name, data):
    text = decode(data)
    if text:
        sayings = re.split(r"^%+[ \t]*$", _ANSI.sub("", text).replace("\r", ""), flags=re.M)
        yield from collect((s.strip("\n").split("\n") + [""] for s in sayings if s.strip()), 1200)


def message_line(text):
    """One translated message as one line: no markup, no key marks, no line ends."""
    text = _TAG.sub("", html.unescape(text.replace("\\n", "\n")))
    text = re.sub(r"~(?=\w)|\(~\w\)", "", text)
    return re.sub(r"\s+", " ", text).strip()


def is_label(line):
    letters = len(line)
    return letters < MIN_STRING_LETTERS and not (_CJK.search(line) and letters * 3 >= MIN_STRING_BYTES)


def read_mo(name, data):
    """GNU message catalogue; a message that equals its English original is left out."""
    if data[:4] not in (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde"):
        return
    order = "<" if data[:1] == b"\xde" else ">"
    count, originals, translations = struct.unpack(order + "3I", data[8:20])

    def entry(table, i):
        length, place = struct.unpack_from(order + "2I", data, table + 8 * i)
        return (decode(data[place : place + length]) or "").split("\0")[0]

    def messages():
        for i in range(1, count):
            original = message_line(entry(originals, i).rpartition("\x04")[2])
            line = message_line(entry(translations, i))
            if not is_label(line) and line != original:
                yield [line]

    yield from collect(messages())


def _fluent(text):
    """Values of a Fluent file, with continuation lines joined and the branches of a choice apart."""
    value = []
    for line in text.split("\n") + [""]:
        match = re.match(r"(?:-?[A-Za-z][\w-]*|\s+\.[\w-]+)\s*=\s*(.*)|\s*\*?\[[^]]*\]\s*(.*)", line)
        starts = match is not None
        if (starts or not line.startswith((" ", "\t"))) and value:
            yield join_lines(value)
            value = []
        if starts:
            value = [match.group(1) if match.group(1) is not None else match.group(2)]
        elif value and line.strip() not in ("}", "{") and not line.startswith("#"):
            value.append(line)


def _properties(text):
    for line in text.replace("\\\n", "").split("\n"):
        if "=" in line and not line.startswith(("#", "!")):
            value = line.split("=", 1)[1].strip()
            yield re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m.group(1), 16)), value)


def read_firefox(name, data):
    """Language pack: a zip file of Fluent and properties files."""

    def messages():
        with zipfile.ZipFile(io.BytesIO(data)) as pack:
            for member in sorted(pack.namelist()):
                reader = _fluent if member.endswith(".ftl") else _properties if member.endswith(".properties") else None
                text = decode(pack.read(member)) if reader else None
                for line in reader(text) if text else ():
                    line = re.sub(r"\{\s*-brand[\w-]*(\([^)]*\))?\s*\}", "Firefox", line)
                    line = re.sub(r"\{\s*\"([^\"]*)\"\s*\}", r"\1", line)
                    line = message_line(re.sub(r"\{\s*(\$[\w-]+)\s*\}", r"\1", line))
                    if not is_label(line) and "{" not in line and "}" not in line:
                        yield [line]

    yield from collect(messages())


# --- source code ------------------------------------------------------------------------------------------------------

_CODE_LANGUAGES = {
    "code-c": "c h", "code-cpp": "cpp cc cxx hpp hh hxx ipp h", "code-java": "java", "code-python": "py", "code-go": "go",
    "code-javascript": "js mjs cjs", "code-typescript": "ts tsx", "code-php": "php", "code-ruby": "rb", "code-lua": "lua",
    "code-rust": "rs", "code-scala": "scala", "code-csharp": "cs",
}  # fmt: skip
_HEAD_COMMENT = re.compile(r"\s*(?:<\?php\s*)?(?:/\*.*?\*/|(?:(?://|#|--)[^\n]*\n)+)", re.S)
MAX_CODE_FILE = 400_000  # larger files are tables and bundles


def code_language(name, wanted):
    """Language of a source file, or None. `wanted` is a code-… language that takes its own endings only, or "*"."""
    ending = os.path.splitext(name)[1][1:].lower()
    for language, endings in _CODE_LANGUAGES.items():
        if wanted in ("*", language) and ending in endings.split():
            return language
    return None


def read_code(name, data):
    if len(data) > MAX_CODE_FILE or re.search(r"\.min\.|/dist/|/vendor/.*/vendor/|_pb2\.|\.pb\.go$|zz_generated", name):
        return
    text = decode(data)
    if not text or "\0" in text:
        return
    head = _HEAD_COMMENT.match(text)
    if head and re.search(r"licen[cs]e|copyright", head.group(0), re.I):
        text = text[head.end() :]
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    size = sum(map(len, lines)) + 1
    digits = sum(c.isdigit() for c in text)
    # Minified code has long lines, and a table is mostly digits.
    if max(map(len, lines)) > 500 or size > 120 * len(lines) or digits > size // 4:
        return
    if name.endswith(".py"):
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return
    yield lines
