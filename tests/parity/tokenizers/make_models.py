#!/usr/bin/env python3
"""Writes fixtures/model/tokenizer_variants: training.json (what PyPI tokenizers learns) and sentencepiece.{model,json}.

usage: pip install tokenizers==0.23.3 sentencepiece==0.2.3; make_models.py FIXTURES_DIR
"""
import json
import sys

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers


def split(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(" ?[^(\\s|[.,!?…。，、।۔،])]+"), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    folder = sys.argv[1] + "/model/"
    strings = json.load(open(folder + "tokenizer/strings.json"))
    texts = [strings["long"][0]["text"]] + [c["text"] for c in strings["cases"]] + ["</s></s></s> <b></b><s> aaaa aaaaa"]
    learned = {}
    for pattern in ("bloom", "gpt2"):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = split(pattern)
        trainer = trainers.BpeTrainer(vocab_size=900, min_frequency=2, special_tokens=["<unk>", "<s>", "</s>", "<pad>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(texts, trainer)
        model = json.loads(tokenizer.to_str())["model"]
        learned[pattern] = {"vocab": model["vocab"], "merges": model["merges"]}
    json.dump({"texts": texts, **learned}, open(folder + "tokenizer_variants/training.json", "w"), separators=(",", ":"))

    for kind in ("bpe", "unigram"):
        prefix = f"{folder}tokenizer_variants/sentencepiece_{kind}"
        lines = [line for text in texts[:1] for line in text.split("\n") if line.strip()]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=prefix, vocab_size=700, character_coverage=0.98, model_type=kind, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
        model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
        samples = [text for text in texts if "\0" not in text][-120:]
        json.dump([{"text": t, "ids": model.encode(t), "decoded": model.decode(model.encode(t))} for t in samples],
                  open(prefix + ".json", "w"), separators=(",", ":"))


main()
