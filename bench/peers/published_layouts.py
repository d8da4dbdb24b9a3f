#!/usr/bin/env python3
"""Writes a tokenizer.json laid out key by key as the published files of GPT-2 and BLOOM are, which are older than what libraries write today:
merges as one text, GPT-2's without a model type and with empty affixes, its added token normalized, BLOOM's byte level without a pattern.

usage: published_layouts.py gpt2 ENCODER.json VOCAB.bpe OUT     the vocabulary of GPT-2 as it was released
       published_layouts.py bloom LEARNED.json OUT              a vocabulary of `trainer tokenizer train`: BLOOM's own is in no package
"""
import json
import sys


def added(id, content, normalized):
    return {"id": id, "special": True, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized}


def byte_level(space, trim, **more):
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": trim, **more}


def gpt2(encoder, bpe):
    vocab = json.load(open(encoder, encoding="utf-8"))
    merges = open(bpe, encoding="utf-8").read().split("\n")[1:]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(50256, "<|endoftext|>", True)],
        "normalizer": None,
        "pre_tokenizer": byte_level(False, True),
        "post_processor": byte_level(True, False),
        "decoder": byte_level(True, True),
        "model": {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "vocab": vocab, "merges": [merge for merge in merges if merge]},
    }  # fmt: skip


def bloom(learned):
    model = json.load(open(learned, encoding="utf-8"))["model"]
    split = {"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated", "invert": False}
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    assert [model["vocab"][token] for token in special] == [0, 1, 2, 3]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added(id, content, False) for id, content in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level(False, True, use_regex=False)]},
        "post_processor": byte_level(True, False, use_regex=False),
        "decoder": byte_level(True, True, use_regex=False),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "vocab": model["vocab"],
                  "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]},
    }  # fmt: skip


kind, *arguments, out = sys.argv[1:]
file = {"gpt2": gpt2, "bloom": bloom}[kind](*arguments)
json.dump(file, open(out, "w", encoding="utf-8"), ensure_ascii=False)
print(f"{out}: {len(file['model']['vocab'])} ids, {len(file['model']['merges'])} merges")
