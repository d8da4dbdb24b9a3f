#!/usr/bin/env python3
"""Compares the ids that `trainer tokenizer encode` gives with those of PyPI tokenizers for the same tokenizer.json.

usage: verify_vocabulary.py TRAINER TOKENIZER.json FILE.jsonl...      (pip install tokenizers; texts under "text")
"""
import json
import subprocess
import sys

from tokenizers import Tokenizer, __version__


def main():
    trainer, file, *inputs = sys.argv[1:]
    texts = [json.loads(line)["text"] for name in inputs for line in open(name, encoding="utf-8")]
    lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    ours = subprocess.run([trainer, "tokenizer", "encode", "--tokenizer", file], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    ours = [json.loads(line) for line in ours.stdout.splitlines()]
    peer = Tokenizer.from_file(file)
    different = tokens = 0
    for text, ids in zip(texts, ours, strict=True):
        wanted = peer.encode(text, add_special_tokens=False).ids
        tokens += len(wanted)
        if ids != wanted:
            different += 1
            print(f"different: {text[:60]!r}: {ids[:10]} … against {wanted[:10]} …")
    print(f"{len(texts)} texts of {len(inputs)} files, {tokens} tokens: {different} differ from tokenizers {__version__}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
