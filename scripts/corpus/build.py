"""Builds the corpus: fetch packages, extract text, assemble one train and one validation file a language. Started by scripts/corpus.sh."""

import argparse
import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time

import assemble
import fetch
from extract import ExtractError, extract
from languages import Mix, language_of, read_sources

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK_LIMIT = 100_000_000  # bytes of download that the quickstart set may cost
FLOOR = 10_000_000  # bytes of text below which a corpus is refused
VALID_BYTES = 320_000  # held-out text in all, shared out by weight
VALID_LEAST, VALID_MOST = 2_500, 100_000  # bytes a language
STARTED = time.monotonic()


class CorpusError(Exception):
    pass


def say(text):
    print(f"corpus {time.monotonic() - STARTED:5.1f}s  {text}", flush=True)


def code_key(*names):
    """Hash of program files and tables: what was made by other code is made again."""
    total = hashlib.sha256()
    for name in names:
        with open(os.path.join(HERE, name), "rb") as file:
            total.update(file.read())
    return total.hexdigest()[:16]


def stop_worker_signals():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def workers(count):
    pool = multiprocessing.get_context("fork").Pool(count, stop_worker_signals)
    try:
        yield pool
        pool.close()
    finally:
        pool.terminate()
        pool.join()


# --- packages ---------------------------------------------------------------------------------------------------------


def wanted_rows(rows, everything, apt):
    """Rows of the chosen set with "*" names written out: [(package, format, language, licence)]."""
    chosen = {}
    for group, package, form, language, licence in rows:
        if group == "all" and not everything:
            continue
        if package.endswith("*"):
            for name, suffix in apt.expand(package):
                told = language if form == "man" else language_of(suffix)
                chosen.setdefault(name, (name, form, told, licence))
        else:
            chosen.setdefault(package, (package, form, language, licence))
    return list(chosen.values())


def fetch_packages(rows, everything, apt):
    """Downloads what the cache does not hold. Returns (package -> (path, version), downloaded bytes)."""
    cached = apt.cached()
    missing = [row[0] for row in rows if row[0] not in cached]
    if not missing:
        return cached, 0
    offers = apt.candidates(missing)
    if any(name not in offers for name in missing) and apt.update():
        offers = apt.candidates(missing)
    for name in missing:
        if name not in offers:
            say(f"warning: {name}: not in this machine's package lists, left out")
    todo = [offers[name] for name in missing if name in offers]
    size = sum(c.size for c in todo)
    if not everything and size > QUICK_LIMIT:
        raise CorpusError(f"the quickstart set would download {size / 1e6:.1f} MB, the limit is {QUICK_LIMIT / 1e6:.0f} MB; shorten sources.tsv")
    say(f"{len(todo)} packages to download, {size / 1e6:.1f} MB; {len(rows) - len(missing)} are in {apt.debs}")
    failed = apt.download(todo)
    for name, why in failed.items():
        say(f"warning: {name}: {why}; left out")
    return apt.cached(), size - sum(offers[name].size for name in failed)


def tree_packages(rows, folder):
    """package -> (path, version) for --from: folders named after packages."""
    known = {row[0] for row in rows}
    found = {}
    for name in sorted(os.listdir(folder)):
        if name in known:
            found[name] = (os.path.join(folder, name), "unpacked")
        else:
            say(f"warning: {folder}/{name}: no row in sources.tsv, left out")
    return found


# --- extraction -------------------------------------------------------------------------------------------------------


def extract_packages(rows, packages, cache, wanted, jobs):
    """Extracts what is not extracted yet; returns the meta records in the order of `rows`."""
    text = os.path.join(cache, "text")
    os.makedirs(text, exist_ok=True)
    program = code_key("formats.py", "extract.py", "languages.py")
    metas, todo = {}, []
    for package, form, language, licence in rows:
        if package not in packages:
            continue
        path, version = packages[package]
        only = sorted(wanted) if wanted and language == "*" else None
        identity = json.dumps([program, path, version, os.path.getsize(path), form, language, licence, only])
        key = hashlib.sha256(identity.encode()).hexdigest()[:16]
        out = os.path.join(text, package)
        try:
            with open(os.path.join(out, "meta.json"), encoding="utf-8") as file:
                meta = json.load(file)
        except (OSError, ValueError):
            meta = {}
        if meta.get("key") == key and os.path.isfile(path):
            metas[package] = meta
        else:
            job = dict(package=package, source=path, version=version, format=form, language=language, licence=licence)
            todo.append(dict(job, out=out, key=key, wanted=only))
    if metas:
        say(f"{len(metas)} packages are extracted already")
    if todo:
        with workers(jobs) as pool:
            for number, meta in enumerate(pool.imap_unordered(extract, sorted(todo, key=lambda j: -os.path.getsize(j["source"]))), 1):
                metas[meta["package"]] = meta
                size = sum(meta["languages"].values()) / 1e6
                bad = f", {meta['skipped']} unreadable" if meta["skipped"] else ""
                what = f"{meta['files']} files{bad}, {len(meta['languages'])} language(s), {size:.2f} M characters"
                say(f"extract  [{number:3}/{len(todo)}] {meta['package']} {meta['version']}: {what}, {meta['seconds']:.1f} s")
    return [metas[row[0]] for row in rows if row[0] in metas]


# --- assembly ---------------------------------------------------------------------------------------------------------

_ENGLISH = frozenset()  # set before the workers are forked, so that they share it


def assemble_language(job):
    language, paths, out, valid_bytes = job
    texts = list(assemble.documents(paths, language, _ENGLISH))
    train, valid = assemble.split(texts, valid_bytes)
    row = {"language": language.code, "train_documents": len(train), "valid_documents": len(valid)}
    row["train_bytes"] = assemble.write_documents(os.path.join(out, "train", f"{language.code}.jsonl"), train)
    row["valid_bytes"] = assemble.write_documents(os.path.join(out, "valid", f"{language.code}.jsonl"), valid)
    return row, (assemble.english_lines(texts) if language.code == "en" else None)


def normalised(mix, codes):
    total = sum(mix[code].weight for code in codes)
    return {code: mix[code].weight / total for code in codes}


def assemble_all(metas, mix, cache, out, jobs):
    global _ENGLISH
    paths = {}
    for meta in metas:
        for code in meta["languages"]:
            paths.setdefault(code, []).append(os.path.join(cache, "text", meta["package"], f"{code}.jsonl"))
    shares = normalised(mix, paths)
    for part in ("train", "valid"):
        os.makedirs(os.path.join(out, part), exist_ok=True)

    def job(code):
        room = int(min(max(VALID_BYTES * shares[code], VALID_LEAST), VALID_MOST))
        return mix[code], paths[code], out, room

    rows = []

    def report(row):
        rows.append(row)
        what = f"{row['train_documents']} documents, {row['train_bytes'] / 1e6:.2f} MB; held out {row['valid_documents']}, {row['valid_bytes'] / 1e3:.1f} KB"
        say(f"assemble [{len(rows):3}/{len(paths)}] {row['language']}: {what}")

    rest = sorted((c for c in paths if c != "en"), key=lambda c: (-sum(os.path.getsize(p) for p in paths[c]), c))
    if "en" in paths:  # first: the others are compared with it
        row, _ENGLISH = assemble_language(job("en"))
        report(row)
    with workers(jobs) as pool:
        for row, _ in pool.imap_unordered(assemble_language, [job(code) for code in rest]):
            report(row)
    return [row for row in rows if row["train_documents"]]


# --- results ----------------------------------------------------------------------------------------------------------


def write_lines(path, lines):
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    os.replace(path + ".part", path)


def write_manifest(path, rows, mix):
    weights = normalised(mix, [row["language"] for row in rows])
    rows.sort(key=lambda row: (-weights[row["language"]], row["language"]))
    lines = ["language\tname\tdocuments\tbytes\ttrain_documents\ttrain_bytes\tvalid_documents\tvalid_bytes\tweight"]
    for row in rows:
        counts = [row[k] for k in ("train_documents", "train_bytes", "valid_documents", "valid_bytes")]
        code = row["language"]
        fields = [code, mix[code].name, counts[0] + counts[2], counts[1] + counts[3], *counts, f"{weights[code]:.6f}"]
        lines.append("\t".join(map(str, fields)))
    write_lines(path, lines)


def read_manifest(path):
    with open(path, encoding="utf-8") as file:
        names = file.readline().rstrip("\n").split("\t")
        return [dict(zip(names, line.rstrip("\n").split("\t"))) for line in file]


def write_licences(path, metas):
    lines = ["package\tversion\tlicence\tlanguages"]
    for meta in metas:
        lines.append(f"{meta['package']}\t{meta['version']}\t{meta['licence']}\t{' '.join(sorted(meta['languages']))}")
    write_lines(path, lines)


def remove_stale(out, rows):
    """Files of languages that an earlier run wrote and this one did not."""
    codes = {row["language"] for row in rows}
    for part in ("train", "valid"):
        for name in os.listdir(os.path.join(out, part)):
            if name.split(".jsonl")[0] not in codes and name.endswith((".jsonl", ".jsonl.part")):
                os.unlink(os.path.join(out, part, name))


def is_complete(out, key):
    """Whether the corpus is whole and was made from the same program, tables and choice."""
    try:
        with open(os.path.join(out, "complete.json"), encoding="utf-8") as file:
            stamp = json.load(file)
        sizes = {name: os.path.getsize(os.path.join(out, name)) for name in stamp["files"]}
    except (OSError, ValueError, KeyError):
        return False
    return stamp.get("key") == key and sizes == stamp["files"]


def write_stamp(out, key, rows):
    names = [f"{part}/{row['language']}.jsonl" for row in rows for part in ("train", "valid")] + ["manifest.tsv", "licences.tsv"]
    stamp = {"key": key, "files": {name: os.path.getsize(os.path.join(out, name)) for name in names}}
    write_lines(os.path.join(out, "complete.json"), [json.dumps(stamp)])


def print_toml(out, prefix):
    try:
        rows = read_manifest(os.path.join(out, "manifest.tsv"))
    except OSError:
        raise CorpusError(f"{out}/manifest.tsv is not there; run scripts/corpus.sh --out {out} first")
    rows = [row for row in rows if float(row["weight"]) > 0]
    print("# For [data] of a recipe that uses data_indexed: each file of the corpus after `trainer preprocess`, weighted as manifest.tsv says.")
    print("train = [")
    for row in rows:
        print(f'  {{ path = "{prefix}train/{row["language"]}", weight = {row["weight"]} }},')
    print("]")
    print("# One set a language: each is read once, and the total weights them by bytes.")
    print("valid = [")
    for row in rows:
        print(f'  {{ name = "{row["language"]}", path = "{prefix}valid/{row["language"]}" }},')
    print("]")


def build(options):
    out = os.path.abspath(options.out)
    cache = os.path.abspath(options.cache or os.path.join(out, "cache"))
    mix, table = Mix(), read_sources()
    tables = code_key("formats.py", "extract.py", "languages.py", "assemble.py", "build.py", "mix.tsv", "sources.tsv")
    key = f"{'all' if options.all else 'quick'} {os.path.abspath(options.source) if options.source else 'apt'} {tables}"
    if is_complete(out, key):
        say(f"{out} is complete, nothing to do")
        return
    os.makedirs(out, exist_ok=True)
    os.makedirs(cache, exist_ok=True)
    lock = open(os.path.join(cache, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CorpusError(f"another run works in {cache}; wait for it, or choose another folder with --out")

    apt = fetch.Apt(cache, say)
    if options.source:
        rows = [(p, f, l, c) for _, p, f, l, c in table if not p.endswith("*")]
        packages, downloaded = tree_packages(rows, options.source), 0
    else:
        rows = wanted_rows(table, options.all, apt)
        packages, downloaded = fetch_packages(rows, options.all, apt)
    # The quickstart set takes from packages of many languages those of the mix that have a name there; --all takes every one.
    named = {code for code, language in mix.languages.items() if language.weight > 0.1 or language.must or code in BLOOM_SMALL}
    metas = extract_packages(rows, packages, cache, None if options.all else named, options.jobs)
    if not metas:
        raise CorpusError("no package could be had; is the network there, and does `apt-get update` work?")
    results = assemble_all(metas, mix, cache, out, options.jobs)

    empty = [code for code, language in mix.languages.items() if language.must and code not in {r["language"] for r in results}]
    total = sum(row["train_bytes"] + row["valid_bytes"] for row in results)
    if not options.source and empty:
        raise CorpusError(f"no text for {', '.join(empty)}; see the warnings above: their packages are missing")
    if not options.source and total < FLOOR:
        raise CorpusError(f"only {total / 1e6:.1f} MB of text, at least {FLOOR / 1e6:.0f} MB are expected; see the warnings above")
    if not results:
        raise CorpusError(f"{options.source}: no text found")
    remove_stale(out, results)
    write_manifest(os.path.join(out, "manifest.tsv"), results, mix)
    write_licences(os.path.join(out, "licences.tsv"), metas)
    write_stamp(out, key, results)
    held = sum(row["valid_bytes"] for row in results)
    say(f"{out}: {len(results)} languages, {(total - held) / 1e6:.1f} MB to train on, {held / 1e3:.0f} KB held out, {downloaded / 1e6:.1f} MB downloaded")


# Languages of BLOOM's list with interface text only; they share the weight of the row "*".
BLOOM_SMALL = {"xh", "zu", "rw", "nso", "st", "tn", "ts"}


def main():
    parser = argparse.ArgumentParser(prog="scripts/corpus.sh", description="Builds a multilingual training corpus from Debian packages.")
    parser.add_argument("--out", default="work/corpus", metavar="DIR", help="where the corpus goes (default: work/corpus)")
    parser.add_argument("--cache", metavar="DIR", help="where packages and extracted text stay (default: DIR/cache)")
    parser.add_argument("--all", action="store_true", help="every source: 500 MB of download, 126 languages, 800 MB of text")
    parser.add_argument("--from", dest="source", metavar="DIR", help="read unpacked packages, DIR/<package>/usr/…, without the package manager")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8), metavar="N", help="processes (default: one a core, at most 8)")
    parser.add_argument("--toml", action="store_true", help="print the blend of the corpus in --out for a recipe, and do nothing else")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="with --toml: what the paths begin with")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.toml:
            print_toml(os.path.abspath(options.out), options.prefix)
        else:
            build(options)
    except KeyboardInterrupt:
        print("\ncorpus: stopped; what is done is kept, run the same command to go on", file=sys.stderr)
        return 130
    except (CorpusError, fetch.FetchError, ExtractError, OSError) as error:
        print(f"corpus: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
