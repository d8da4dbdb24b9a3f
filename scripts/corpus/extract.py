"""One package -> documents by language.

A package is a .deb file, read through dpkg-deb without being installed, or a folder laid out as `dpkg-deb -x` leaves it. The result is a
folder cache/text/<package>/ with <language>.jsonl (one {"kind", "lines"} a line) and meta.json; it is made under another name and renamed,
so that what is there is whole.
"""

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
import zipfile

import formats
from languages import language_of

# format -> (which files, reader, kind). A prose line may be long and is a paragraph; strings are interface messages.
FORMATS = {
    "lohelp": (r"/help/[^/]+/text/.*\.html$", formats.read_html, "prose"),
    "html": (r"\.html$", formats.read_html, "prose"),
    "mallard": (r"/share/help/[^/]+/.*\.page$", formats.read_html, "prose"),
    "man": (r"/share/man/.*/?man[1-8]/[^/]+\.gz$", formats.read_man, "prose"),
    "fortune": (r"/games/fortunes/(?:[a-z]{2}/)?(?!ascii-art|ethnic|men-women|sex)[^/.]+(?:\.fortunes)?$", formats.read_fortune, "prose"),
    "mo": (r"/LC_MESSAGES/[^/]+\.mo$", formats.read_mo, "strings"),
    "firefox": (r"\.xpi$", formats.read_firefox, "strings"),
    "code": (r"\.(?:[ch]|cpp|cc|cxx|[hi]pp|hh|hxx|java|py|[cm]?js|tsx?|php|rb|lua|go|rs|scala|cs)$|/src\.zip$|^/usr/src/.*\.tar\.[gx]z$", formats.read_code, "code"),
}
# Where the language stands in the path, for packages of several languages.
_PATH_LANGUAGE = re.compile(
    r"/share/help/([^/]+)/|/share/man/([a-z]{2,3}(?:[_@][A-Za-z_@]+)?)/man|/html/([a-z]{2}(?:-[A-Z]{2})?)/"
    r"|/([a-z]{2}(?:[_-][A-Z]{2})?)/[^/]+\.html$|\.([a-z]{2}(?:[_-][A-Za-z]{2})?)\.html$"
)


class ExtractError(Exception):
    pass


def deb_files(path, wanted):
    """Yields (name, bytes) of the regular files whose name `wanted` accepts, in the archive's order."""
    # A session of its own: Ctrl-C goes to this program, which then closes the pipe.
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE, start_new_session=True) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                name = "/" + member.name.lstrip("./")
                if member.isfile() and wanted(name):
                    yield name, archive.extractfile(member).read()
    if process.returncode:
        raise ExtractError(f"{path}: dpkg-deb could not read it (exit code {process.returncode}); delete it and run again")


def tree_files(path, wanted):
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            full = os.path.join(folder, name)
            inside = "/" + os.path.relpath(full, path)
            if wanted(inside) and not os.path.islink(full):
                with open(full, "rb") as file:
                    yield inside, file.read()


def _archive_members(name, data):
    """Source packages that hold one archive of their sources: its members, else the file itself."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in sorted(archive.namelist()):
                yield "/" + member, archive.read(member)
    elif re.search(r"\.tar\.[gx]z$", name):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                if member.isfile() and member.size <= formats.MAX_CODE_FILE:
                    yield "/" + member.name, archive.extractfile(member).read()
    else:
        yield name, data


def _licence(data):
    """Licence short names of a machine-readable copyright file: that of "Files: *" first, then the others; "" for other files."""
    text = data.decode("utf-8", "replace")
    if "packaging-manuals/copyright-format" not in text and "dep.debian.net" not in text and not re.search(r"^Files:", text, re.M):
        return ""
    names = []
    for stanza in re.split(r"\n\s*\n", text):
        found = re.search(r"^License:[ \t]*(\S[^\n]*)", stanza, re.M)
        if found:
            place = 0 if re.search(r"^Files:[ \t]*\*[ \t]*$", stanza, re.M) else len(names)
            names.insert(place, found.group(1).strip().replace("\t", " "))
    return "; ".join(list(dict.fromkeys(names))[:6])


def extract(job):
    """Worker: extract_package, with errors that name the package (an exception of a library need not survive the way to the parent)."""
    try:
        return extract_package(job)
    except Exception as error:
        raise ExtractError(f"{job['package']}: {error} ({type(error).__name__}); delete {job['source']} and run again") from None


def extract_package(job):
    """job = dict(package, source, version, format, language, licence, out, key). Returns the meta record."""
    started = time.monotonic()
    package, form = job["package"], job["format"]
    pattern, reader, kind = FORMATS[form]
    accept = re.compile(pattern)
    copyright_file = f"/usr/share/doc/{package}/copyright"
    licence = ""
    documents = {}  # language -> [(file name, number, lines)]
    files = skipped = 0

    read = tree_files if os.path.isdir(job["source"]) else deb_files
    for name, data in read(job["source"], lambda n: n == copyright_file or accept.search(n) is not None):
        if name == copyright_file:
            licence = _licence(data)
            continue
        for inner, content in _archive_members(name, data) if form == "code" else ((name, data),):
            if form == "code":
                language = formats.code_language(inner, job["language"])
            elif job["language"] == "*":
                found = _PATH_LANGUAGE.search(inner)
                language = language_of(next(filter(None, found.groups()))) if found else "en"
            else:
                language = job["language"]
            if language is None or (job["wanted"] and language not in job["wanted"]):
                continue
            files += 1
            try:
                texts = list(reader(inner, content))
            except (OSError, EOFError, ValueError, zipfile.BadZipFile):  # one broken file must not cost the package
                skipped += 1
                continue
            for number, lines in enumerate(texts):
                documents.setdefault(language, []).append((inner, number, lines))

    out = job["out"]
    shutil.rmtree(out + ".part", ignore_errors=True)
    os.makedirs(out + ".part")
    sizes = {}
    for language, found in documents.items():
        found.sort(key=lambda d: d[:2])
        with open(f"{out}.part/{language}.jsonl", "w", encoding="utf-8", errors="replace") as file:
            for _, _, lines in found:
                file.write(json.dumps({"kind": kind, "lines": lines}, ensure_ascii=False) + "\n")
                sizes[language] = sizes.get(language, 0) + sum(map(len, lines))
    meta = {
        "key": job["key"], "package": package, "version": job["version"], "licence": licence or job["licence"], "files": files,
        "skipped": skipped, "languages": sizes, "seconds": round(time.monotonic() - started, 2),
    }  # fmt: skip
    with open(f"{out}.part/meta.json", "w", encoding="utf-8") as file:
        json.dump(meta, file)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(out + ".part", out)
    return meta
