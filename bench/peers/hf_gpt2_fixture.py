#!/usr/bin/env python3
"""Makes tests/fixtures/model/tiny_gpt2: a GPT-2 of random weights as transformers writes it, and what it computes.

The logits, the loss and the gradients are those of the same model in float64, rounded to FP32. Gradients have the
names and the layout that `trainer numerics` writes: weights as [out, in], and q, k and v of a head together.

    python3 -m venv venv && venv/bin/pip install -r bench/peers/hf_requirements.txt
    venv/bin/python bench/peers/hf_gpt2_fixture.py tests/fixtures/model/tiny_gpt2
"""
import copy
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, POSITIONS, SEQ, HIDDEN, HEADS, LAYERS, INNER = 67, 24, 20, 40, 5, 2, 96


PARTS = {"ln_1": "input_layernorm", "attn.c_attn": "self_attention.query_key_value", "attn.c_proj": "self_attention.dense",
         "ln_2": "post_attention_layernorm", "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h"}


def as_ours(name: str, value: torch.Tensor) -> tuple[str, torch.Tensor]:
    name = name.removeprefix("transformer.")
    name = name.replace("wte.", "word_embeddings.").replace("wpe.", "position_embeddings.")
    for theirs, ours in PARTS.items():
        if f".{theirs}." in name:
            if theirs not in ("ln_1", "ln_2") and value.dim() == 2:
                value = value.T
            if theirs == "attn.c_attn":  # [q | k | v][head][channel] to [head][q, k, v][channel]
                value = value.reshape(3, HEADS, HIDDEN // HEADS, -1).transpose(0, 1).reshape(3 * HIDDEN, -1)
                value = value.squeeze(1)
            name = name.replace(theirs, ours)
            break
    return "transformer." + name, value


def forward_backward(model: torch.nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    result = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    result.update(("grad." + ours, gradient) for ours, gradient in
                  (as_ours(name, parameter.grad) for name, parameter in model.named_parameters()))
    squares = sum(gradient.square().sum() for name, gradient in result.items() if name.startswith("grad."))
    result["grad_norm"] = squares.sqrt()
    return result


def main(folder: Path) -> None:
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
                        n_inner=INNER, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=1, eos_token_id=2,
                        attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # every parameter matters
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if "ln_" in name:
                parameter.copy_((1 if name.endswith("weight") else 0) + 0.2 * noise)
            else:
                parameter.copy_((0.1 if name.endswith("bias") else 0.2) * noise)
    model.save_pretrained(folder / "hf")

    ids = torch.randint(0, VOCAB, (2, SEQ + 1))
    truth = forward_backward(copy.deepcopy(model).double(), ids)
    single = forward_backward(model, ids)
    tensors = {name: tensor.float().contiguous() for name, tensor in truth.items() if name != "grad_norm"}
    save_file({"input_ids": ids, **tensors}, folder / "fwd_bwd.safetensors")
    deviation = {name: {"max_abs": (single[name].double() - tensor).abs().max().item(),
                        "ref_rms": tensor.square().mean().sqrt().item()}
                 for name, tensor in truth.items() if name != "loss"}
    about = {"meta": {"name": "tiny_gpt2", "seq": SEQ, "torch": torch.__version__,
                      "transformers": transformers.__version__},
             "loss": truth["loss"].item(), "grad_norm": truth["grad_norm"].item(),
             "deviation_of_hf_fp32_from_float64": deviation}
    (folder / "fwd_bwd.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
