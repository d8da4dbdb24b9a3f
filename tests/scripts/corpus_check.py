"""Checks the corpus that corpus_test.sh built from the inputs of corpus_inputs.py: corpus_check.py DIR."""

import json
import os
import sys
import unicodedata

OUT = sys.argv[1]
REPEATED = "This sentence stands on every page of the help and must be kept once only, not thirty times."
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def documents(part, language):
    with open(os.path.join(OUT, part, f"{language}.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    check(all(list(r) == ["text"] and isinstance(r["text"], str) for r in records), f"{part}/{language}: every line is an object with a text")
    return [r["text"] for r in records]


def main():
    languages = sorted(name[: -len(".jsonl")] for name in os.listdir(os.path.join(OUT, "train")))
    check(languages == ["code-python", "en", "fr", "hi", "ta"], f"languages: {languages}")
    corpus = {}
    for language in languages:
        train, valid = documents("train", language), documents("valid", language)
        check(train and valid, f"{language}: documents in both parts")
        both = train + valid
        corpus[language] = "\n".join(both)
        check(len(set(both)) == len(both), f"{language}: a document twice, or in both parts")
        for text in both:
            check(unicodedata.is_normalized("NFC", text), f"{language}: not NFC")
            check(100 <= len(text.encode("utf-8")) <= 8000, f"{language}: a document of {len(text.encode('utf-8'))} bytes")
            check(not any(ord(c) < 32 and c not in "\n\t" for c in text), f"{language}: a control character")
        if not language.startswith("code"):
            long_lines = [{line for text in part for line in text.split("\n") if len(line.encode("utf-8")) >= 64} for part in (train, valid)]
            check(not (long_lines[0] & long_lines[1]), f"{language}: a long line in both parts")

    check(corpus["en"].count(REPEATED) == 1, f"the repeated line stands {corpus['en'].count(REPEATED)} times")
    check("bold&more" in corpus["en"], "character references are resolved")
    for absent in ("navigation", "hidden", "menu of all", "<"):
        check(absent not in corpus["en"], f"en: markup or navigation is left: {absent}")
    check("has not been translated" not in corpus["fr"], "fr: English by its words is left")
    check(not set(corpus["en"].split("\n")) & {line for line in corpus["fr"].split("\n") if len(line) > 12}, "fr: a line of the English text is left")
    check("vu " * 3 not in corpus["fr"], "fr: text that is not UTF-8 is left")
    check("Cette ligne est coupée en deux." in corpus["fr"], "fr: wrapped lines of a manual page are joined")
    check("chown(2) change le propriétaire d’un fichier" in corpus["fr"], "fr: alternating fonts of a manual page")
    check("ne pas lire" not in corpus["fr"] and "\\f" not in corpus["fr"], "fr: a roff table or escape is left")
    check("original language" not in corpus["ta"], "ta: an untranslated message is left")
    check("~" not in corpus["ta"] and "மீண்டும்" in corpus["ta"], "ta: messages without key marks")
    check("Firefox" in corpus["hi"] and "{" not in corpus["hi"] and "English" not in corpus["hi"], "hi: Fluent values")
    check("Not translated" not in corpus["hi"] and "यह संदेश लंबा" in corpus["hi"], "hi: properties with escapes; no English")
    for absent in ("Copyright", "More of it", "unfinished", "123456789, 123456789"):
        check(absent not in corpus["code-python"], f"code: {absent} is left")
    check("    return value + 3" in corpus["code-python"], "code: indents are kept")

    with open(os.path.join(OUT, "manifest.tsv"), encoding="utf-8") as file:
        names = file.readline().rstrip("\n").split("\t")
        rows = [dict(zip(names, line.rstrip("\n").split("\t"))) for line in file]
    check(sorted(r["language"] for r in rows) == languages, "manifest: one row a language")
    check(abs(sum(float(r["weight"]) for r in rows) - 1) < 1e-4, "manifest: weights sum to one")
    for row in rows:
        for part in ("train", "valid"):
            found = documents(part, row["language"])
            size = sum(len(t.encode("utf-8")) for t in found)
            check((int(row[f"{part}_documents"]), int(row[f"{part}_bytes"])) == (len(found), size), f"manifest: {part} of {row['language']}")
        check(int(row["valid_bytes"]) * 4 < int(row["train_bytes"]), f"{row['language']}: too much is held out")
    with open(os.path.join(OUT, "licences.tsv"), encoding="utf-8") as file:
        licences = dict(line.split("\t")[::2][:2] for line in file)
    check(licences.get("python3-docutils") == "public-domain; GPL-3+", f"licences: {licences.get('python3-docutils')}")
    check(licences.get("libreoffice-help-fr") == "MPL-2.0", "licences: the table's, without a copyright file")

    for failure in dict.fromkeys(failures):
        print(f"FAILED: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


main()
