#!/usr/bin/env python3
"""Encodes the texts of JSONL files on one thread with PyPI tokenizers or tiktoken; prints what bench/tokenizer_bench prints.

usage: encode_with.py tokenizers|tiktoken TOKENIZER.json ROUNDS FILE.jsonl...
"""
import array
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import xxhash


def with_tokenizers(file):
    from tokenizers import Tokenizer

    # A tokenizer of its own each round, so that each starts with an empty cache.
    def make():
        tokenizer = Tokenizer.from_file(file)
        return lambda documents: [e.ids for e in tokenizer.encode_batch(documents, add_special_tokens=False)]

    return make


def with_tiktoken(file):
    import tiktoken

    spec = json.load(open(file))
    symbols, spare = {}, 256
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            symbols[chr(byte)] = byte
        else:
            symbols[chr(spare)] = byte
            spare += 1
    special = {t["content"]: t["id"] for t in spec["added_tokens"]}
    ranks = {}
    for token, id in spec["model"]["vocab"].items():
        if token not in special:
            ranks[bytes(symbols[c] for c in token)] = id
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    encoding = tiktoken.Encoding("file", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    return lambda: lambda documents: [encoding.encode(d, allowed_special="all") for d in documents]


def main():
    kind, file, rounds, *files = sys.argv[1:]
    make = {"tokenizers": with_tokenizers, "tiktoken": with_tiktoken}[kind](file)
    documents = [json.loads(line)["text"] for name in files for line in open(name, encoding="utf-8")]
    size = sum(len(d.encode()) for d in documents)
    best = 0.0
    for _ in range(int(rounds)):
        encode = make()
        start = time.process_time()
        lists = encode(documents)
        best = max(best, size / (time.process_time() - start) / 1e6)
    ids = array.array("i")
    for one in lists:
        ids.extend(one)
    print(json.dumps({"documents": len(documents), "mb": round(size / 1e6, 1), "mb_per_s": round(best, 2), "ids": len(ids),
                      "hash": f"{xxhash.xxh3_64_intdigest(ids.tobytes()):016x}"}))


main()
