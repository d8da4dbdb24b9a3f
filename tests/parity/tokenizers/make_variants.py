#!/usr/bin/env python3
"""Writes fixtures/model/tokenizer_variants/variants.json: changes to a fixture file, and what PyPI tokenizers makes of texts then.

usage: pip install tokenizers==0.23.3; make_variants.py FIXTURES_DIR
A variant is a merge patch (RFC 7386) of bloom_tokenizer.json or gpt2_tokenizer.json; "add" extends its added tokens.
"""
import json
import random
import sys
import tempfile

import tokenizers
from tokenizers import Tokenizer

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    step = {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, BYTES]}}


def token(content, **flags):
    base = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False}
    return {**base, **flags}


BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
VARIANTS = [("prefix space, no pattern", "bloom", {"pre_tokenizer": {**BYTES, "add_prefix_space": True}}, []),
            ("prefix space, pattern", "gpt2", {"pre_tokenizer": {**BYTES, "add_prefix_space": True, "use_regex": True}}, []),
            ("no pattern", "bloom", {"pre_tokenizer": BYTES}, []),
            ("llama 3", "bloom", split(LLAMA3), []), ("qwen 2", "bloom", split(QWEN2), []), ("o200k", "bloom", split(O200K), []),
            ("llama 3, merges ignored", "bloom", {**split(LLAMA3), "model": {"ignore_merges": True}}, []),
            ("gpt2 pattern by Split", "gpt2", split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), []),
            ("bloom pattern removed", "bloom", split(" ?[^(\\s|[.,!?…。，、।۔،])]+", "Removed"), []),
            ("bloom pattern inverted", "bloom", split(" ?[^(\\s|[.,!?…。，、।۔،])]+", "Removed", True), []),
            ("words", "bloom", split(r"\w+|[^\w\s]+", "Removed", True), []),
            ("empty matches", "bloom", split("x*"), []),
            ("classes", "bloom", split(r"[a-c[x-z]]+|[\d\s]{2,3}|[^\S\n]|\h{2}"), []),
            ("literal", "bloom", split(".a", "MergedWithNext", kind="String"), [])]
VARIANTS += [(f"{b}, {'inverted' if i else 'plain'}", "bloom", split(r"\s", b, i), []) for b in BEHAVIORS for i in (False, True)]
for each in (False, True):
    steps = [{"type": "Digits", "individual_digits": each}, {**BYTES, "use_regex": True}]
    VARIANTS.append((f"digits, each: {each}", "gpt2", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}, []))
for form in ("NFC", "NFD", "NFKC", "NFKD"):
    added = [token("été", normalized=True), token("ﬁ", normalized=False)]
    VARIANTS.append((form, "bloom", {"normalizer": {"type": form}}, added))
VARIANTS.append(("forms", "bloom", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]}}, []))
FLAGS = [token("<mask>", lstrip=True, special=True), token("[x]", rstrip=True), token("both", lstrip=True, rstrip=True),
         token("word", single_word=True), token("wordy", single_word=True), token("a", single_word=True, lstrip=True),
         token("ilÖveyou"), token("<naïve>", special=True), token("  "), token("aa"), token("aab"),
         token("\n", normalized=True)]
VARIANTS.append(("flags of added tokens", "bloom", {}, FLAGS))

TEXTS = ["", " ", "  ", "Hello world", " Hello  world ", "don't DON'T I'LL we've", "a1b22c333d4444 ٣٤ Ⅷ½", "tab\tand\nnew\r\n\nlines \n x",
         "f(x)|g(y) a  b,c. d! e?", "été e\u0301te\u0301 ﬁn ﬁ Å Å ①", "x xx axb", ".a .a. b.a", "中文字，你好。 हिन्दी। اردو۔ عربي،",
         "<s>hi</s> <mask> <mask>[x]  [x] both  both both", "word wordy words sword word. (word) wordy! é-word word\u0301 _word word_",
         "a a  a aa aab aaab ba", "ilÖveyou <naïve>ilÖveyou", "   <mask>   <mask>\t\n", "😀😀 a😀\u200d👩 \u00a0\u2003x\u3000y\u180ez",
         "ABCdefGHI HTMLParser's iPhone'S  /a/b\n", "123456789 12 345", "!!! ... ?! --- ***bold***\n", "abcxyz 12 0a ff zz", "\u0000\u0001\u007f"]
ALPHABET = list("  \t\n\r'stLlaAbxXyz19.,(|)!?-_") + ["é", "e\u0301", "中", "。", "अ", "ि", "٣", "😀", "ﬁ", "<s>", "<mask>", "word", "both",
                                                     "[x]", "aa", "\u00a0", "\u2028", "ß", "ǅ"]


def main():
    folder = sys.argv[1] + "/model/"
    rng = random.Random(7)
    texts = TEXTS + ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 24))) for _ in range(40)]
    variants = []
    for name, base, patch, added in VARIANTS:
        spec = json.load(open(f"{folder}tokenizer/{base}_tokenizer.json"))
        for key, value in patch.items():
            if key == "model":
                spec["model"].update(value)
            else:
                spec[key] = value
        new = max(spec["model"]["vocab"].values()) + 1
        for one in added:  # a token of the vocabulary keeps its id
            one["id"] = spec["model"]["vocab"].get(one["content"], new)
            new += one["id"] == new
        spec["added_tokens"] += added
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(spec, file)
            file.flush()
            tokenizer = Tokenizer.from_file(file.name)
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        variants.append({"name": name, "base": base, "patch": patch, "add": added, "ids": ids})
    with open(folder + "tokenizer_variants/variants.json", "w") as out:
        out.write(json.dumps({"tokenizers": tokenizers.__version__}, ensure_ascii=True)[:-1] + ',\n"texts": ')
        out.write(json.dumps(texts, ensure_ascii=True) + ',\n"variants": [\n')
        out.write(",\n".join(json.dumps(v, ensure_ascii=True, separators=(",", ":")) for v in variants) + "\n]}\n")


main()
