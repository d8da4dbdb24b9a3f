#!/usr/bin/env python3
"""Opens exports of `trainer convert` in transformers and compares logits.

Each fixture model goes Hugging Face folder -> checkpoint -> Hugging Face folder. transformers reads the export and
computes the logits of the fixture's batch in FP32; `trainer numerics` computes those of the checkpoint. Both are compared
with each other and with the float64 truth of the fixture.

    python3 -m venv venv && venv/bin/pip install -r bench/peers/hf_requirements.txt
    venv/bin/python bench/peers/hf_logits.py build/app/trainer
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

MODELS = Path(__file__).resolve().parents[2] / "tests/fixtures/model"
TOLERANCE = 1e-4
# model, batch, and what the truth is called there; shards of so many bytes
CASES = [("tiny_a/hf", "tiny_a/fwd_bwd", "tiny_a/fwd_bwd", "logits", "5GB"),
         ("tiny_b/hf", "tiny_b/fwd_bwd", "tiny_b/fwd_bwd", "logits", "200000"),
         ("tiny_a/hf_bf16_sharded", "tiny_a/fwd_bwd", "tiny_a/hf_bf16_sharded_expected", "logits_fp32_compute", "5GB"),
         ("tiny_gpt2/hf", "tiny_gpt2/fwd_bwd", "tiny_gpt2/fwd_bwd", "logits", "40000")]


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def one(trainer: str, work: Path, model: str, batch: str, truth: str, name: str, shard: str) -> bool:
    run = lambda *words: subprocess.run([trainer, *map(str, words)], check=True, capture_output=True)  # noqa: E731
    run("convert", MODELS / model, work / "checkpoint")
    run("convert", work / "checkpoint", work / "export", "--shard-size", shard)
    run("numerics", "--model", work / "checkpoint", "--batch", MODELS / (batch + ".safetensors"), "--out", work / "ours")
    peer = AutoModelForCausalLM.from_pretrained(work / "export", dtype=torch.float32).eval()
    ids = load_file(MODELS / (batch + ".safetensors"))["input_ids"][:, :-1]
    with torch.no_grad():
        theirs = peer(ids).logits
    ours = load_file(work / "ours")["logits"].reshape(theirs.shape)
    exact = load_file(MODELS / (truth + ".safetensors"))[name]
    exact = exact.reshape(-1, *theirs.shape[1:])[:len(theirs)]
    files = len(list((work / "export").glob("*.safetensors")))
    differences = largest(ours, theirs), largest(theirs, exact), largest(ours, exact)
    print(f"{model:<24} {type(peer).__name__:<18} {files:>5} {differences[0]:>20.2e} {differences[1]:>20.2e} {differences[2]:>14.2e}")
    return max(differences) <= TOLERANCE


def main() -> int:
    trainer = sys.argv[1] if len(sys.argv) > 1 else "build/app/trainer"
    print(f"{'model':<24} {'opened as':<18} {'files':>5} {'ours - transformers':>20} {'transformers - truth':>20} {'ours - truth':>14}")
    good = True
    for case in CASES:
        with tempfile.TemporaryDirectory() as work:
            good = one(trainer, Path(work), *case) and good
    print(f"largest absolute difference of logits allowed: {TOLERANCE}: {'kept' if good else 'EXCEEDED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
