"""Writes tiny unpacked packages for corpus_test.sh: corpus_inputs.py DIR."""

import gzip
import io
import os
import random
import struct
import sys
import unicodedata
import zipfile

ROOT = sys.argv[1]
ENGLISH = "the cell row column sheet opens saves prints a document when you press this key and that window shows it with every value".split()
FRENCH = "la cellule ligne colonne feuille ouvre enregistre imprime un document quand vous appuyez sur cette touche déjà réglée".split()
REPEATED = "This sentence stands on every page of the help and must be kept once only, not thirty times."


def write(path, data):
    full = os.path.join(ROOT, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode("utf-8"))


def sentences(words, seed, count):
    rng = random.Random(seed)
    return [" ".join(rng.choice(words) for _ in range(12)).capitalize() + "." for _ in range(count)]


def page(paragraphs):
    head = "<html><head><title>navigation</title><script>var hidden = 1;</script></head><body><div>menu of all pages</div>"
    body = "".join(f"<p class='x'>{p} <b>bold</b>&amp;more</p>" for p in paragraphs)
    return f'{head}<div id="DisplayArea">{body}</div></body></html>'


def mo(messages):
    messages = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **messages}.items())
    at, originals, translations, data = 28 + 16 * len(messages), b"", b"", b""
    tables = []
    for side in (0, 1):
        table = b""
        for pair in messages:
            text = pair[side].encode("utf-8")
            table += struct.pack("<2I", len(text), at + len(data))
            data += text + b"\0"
        tables.append(table)
    originals, translations = tables
    return struct.pack("<7I", 0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0) + originals + translations + data


def main():
    english_pages = [[REPEATED] + sentences(ENGLISH, n, 6) for n in range(30)]
    for n, paragraphs in enumerate(english_pages + [english_pages[3]]):
        write(f"libreoffice-help-en-us/usr/share/libreoffice/help/en-US/text/p{n:02}.html", page(paragraphs))
    for n in range(30):
        paragraphs = sentences(FRENCH, 100 + n, 6) + [english_pages[n][1], "If you see this then the page has not been translated."]
        paragraphs = [unicodedata.normalize("NFD", p) for p in paragraphs]
        write(f"libreoffice-help-fr/usr/share/libreoffice/help/fr/text/p{n:02}.html", page(paragraphs))
    write("libreoffice-help-fr/usr/share/libreoffice/help/fr/text/latin1.html", page(["d\xe9j\xe0 vu " * 40]).encode("latin-1"))

    roff = (
        '.\\" a comment\n.TH LS 1\n.SH NOM\nls \\- afficher le contenu\n.SH DESCRIPTION\nCette ligne est\n\\fBcoupée\\fP en deux.\n.TP\n'
        ".BR chown (2)\nchange le propriétaire d’un fichier\n.TS\nne pas lire\n.TE\n"
    )
    write("manpages-fr/usr/share/man/fr/man1/ls.1.gz", gzip.compress((roff + ".PP\n" + "\n.PP\n".join(sentences(FRENCH, 7, 8))).encode(), mtime=0))

    tamil = "ஆவணத்தை திறக்க முடியவில்லை எண்"
    messages = {f"key{n}\x04Message number {n}": f"~{tamil} {n} மீண்டும் முயற்சிக்கவும்" for n in range(60)}
    messages["left alone in the original language"] = "left alone in the original language"
    write("libreoffice-l10n-ta/usr/lib/libreoffice/program/resource/ta/LC_MESSAGES/sw.mo", mo(messages))

    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w") as archive:
        lines = [f"key-{n} = यह संदेश { '{ -brand-short-name }' } के लिए है {n}\n    .label = दूसरा लंबा पाठ यहाँ है {n}" for n in range(60)]
        archive.writestr("localization/hi-IN/a.ftl", "# comment in English\n" + "\n".join(lines) + "\nlast = Not translated at all here\n")
        archive.writestr("chrome/hi/b.properties", "k=\\u092f\\u0939 \\u0938\\u0902\\u0926\\u0947\\u0936 \\u0932\\u0902\\u092c\\u093e\n")
    write("firefox-esr-l10n-hi-in/usr/lib/firefox-esr/browser/extensions/langpack-hi-IN.xpi", pack.getvalue())

    base = "python3-docutils/usr/lib/python3/dist-packages/docutils"
    for n in range(20):
        body = "\n".join(f"def function_{n}_{i}(value):\n    # adds {i}\n    return value + {i}\n" for i in range(12))
        write(f"{base}/m{n}.py", f"# Copyright somebody. All rights reserved, licence below.\n# More of it.\n\n{body}")
    write(f"{base}/broken.py", "def unfinished(:\n" * 40)
    write(f"{base}/table.py", "TABLE = [" + "123456789, " * 400 + "]\n")
    write("python3-docutils/usr/share/doc/python3-docutils/copyright",
          "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: debian/*\nLicense: GPL-3+\n\nFiles: *\nLicense: public-domain\n")  # fmt: skip
    write("no-such-package/usr/share/x.html", "<p>not in the table</p>")


main()
