"""Runs encoders in PyTorch's transformers; run by the Python of an environment that has both.

    encoders_peer_side.py FOLDER...

Each folder holds an encoder and ``inputs.npz``: token ids, mask, optional segments, and the factors of the loss. It
gets ``outputs.npz``: the hidden states, the pooler's output, and the gradient of each weight.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def run(folder: Path) -> None:
    """Compute one encoder's outputs and gradients, in float32."""
    with_decoder = transformers.AutoConfig.from_pretrained(folder).is_encoder_decoder
    kind = transformers.AutoModelForTextEncoding if with_decoder else transformers.AutoModel
    model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    model.eval()
    given = np.load(folder / "inputs.npz")
    inputs = {"input_ids": torch.tensor(given["ids"]).long(), "attention_mask": torch.tensor(given["mask"]).long()}
    if "segments" in given:
        inputs["token_type_ids"] = torch.tensor(given["segments"]).long()
    output = model(**inputs)
    loss = (output.last_hidden_state * torch.tensor(given["factors"])).sum()
    arrays = {"states": output.last_hidden_state.detach().numpy()}
    if getattr(output, "pooler_output", None) is not None:
        loss = loss + (output.pooler_output * torch.tensor(given["pooler_factors"])).sum()
        arrays["pooler"] = output.pooler_output.detach().numpy()
    loss.backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            arrays[f"gradient {name}"] = weight.grad.numpy()
    np.savez(folder / "outputs.npz", **arrays)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for one in sys.argv[1:]:
        run(Path(one))
