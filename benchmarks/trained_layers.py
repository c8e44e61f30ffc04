"""What to train of an encoder: all layers, half of them, adapters of low rank, or nothing; and a model without encoder.

    python -m benchmarks.trained_layers --encoder FOLDER --data DIR [DIR ...] [--documents 3000] [--seeds 2]

DIR holds X.trn.txt, Y.trn.npz and labels.txt. Each way is trained on the same random training documents and measured on
1,000 others of the training set. Prints a JSON line for each set and way: P@1/3/5 of each seed, the mean seconds of the
clock and of the processor, the peak of the process's own memory, and the bytes of gradients that ranks sum in a step.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.sides.corpora import read_corpus
from xmc_tf.data import save_matrix
from xmc_tf.encoder import Encoder
from xmc_tf.metrics import measure
from xmc_tf.models.loading import load

_MEASURED = Path(__file__).with_name("sides") / "measured.py"
_TESTED = 1000
_FIGURES = ("seconds", "cpu_s", "own_mb")
WAYS = {
    "all": (),
    "half": ("--train-layers", "half"),
    "adapters": ("--lora-rank", "8"),
    "adapters, half": ("--lora-rank", "8", "--train-layers", "half"),
    "nothing": ("--no-fine-tune",),
    "no encoder": ("--probabilities", "true", "--label-names", "true"),
}
_FIXED = ("nothing", "no encoder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a folder with a pre-trained encoder")
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--flags", default="", help="more flags of each training that fine-tunes")
    a = parser.parse_args()
    for folder in a.data:
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in a.ways}
        for seed in range(a.seeds):
            with tempfile.TemporaryDirectory() as temporary:
                corpus = _sample(folder, a.documents, seed, Path(temporary))
                for way in a.ways:
                    found[way].append(_trained(corpus, a.encoder, way, seed, a.flags.split()))
                    print(f"{folder.name}, {way}, seed {seed}: {found[way][-1]}", file=sys.stderr, flush=True)
        for way, runs in found.items():
            print(json.dumps({
                "figure": "trained_layers", "data": folder.name, "documents": a.documents, "way": way,
                "P": [one["P"] for one in runs],
                **{name: round(float(np.mean([one[name] for one in runs])), 1) for name in _FIGURES},
                "gradient_mb": round(_gradient_bytes(a.encoder, way) / 1e6, 1),
            }), flush=True)  # fmt: skip


def _sample(folder: Path, documents: int, seed: int, target: Path) -> Path:
    """Write a random part of the training documents, and others to measure on, into the target."""
    texts, matrices = read_corpus(folder)
    order = np.random.default_rng(seed).permutation(len(texts["trn"]))
    for name, rows in (("trn", order[_TESTED:][:documents]), ("tst", order[:_TESTED])):
        (target / f"X.{name}.txt").write_text("".join(f"{texts['trn'][row]}\n" for row in rows), encoding="utf-8")
        save_matrix(target / f"Y.{name}.npz", csr_matrix(matrices["trn"][rows]))
    (target / "labels.txt").write_bytes((folder / "labels.txt").read_bytes())
    return target


def _trained(corpus: Path, encoder: str, way: str, seed: int, more: list[str]) -> dict[str, Any]:
    model = corpus / way.replace(", ", "-")
    data = ["-t", corpus / "X.trn.txt", "-y", corpus / "Y.trn.npz", "--labels", corpus / "labels.txt", "-m", model]
    module = ["xmc_tf.linear.train"] if way == "no encoder" else ["xmc_tf.train", "--model-shortcut", encoder]
    flags = [*module, *data, "--seed", seed, *WAYS[way], *(more if way not in _FIXED else [])]
    command = [sys.executable, str(_MEASURED), str(corpus), sys.executable, "-m", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{way} failed:\n{done.stderr[-3000:]}")
    texts, matrices = read_corpus(corpus)
    overall, *_ = measure(matrices["tst"], load(model).predict(texts["tst"]), ks=[1, 3, 5])
    figures = json.loads((corpus / "0.json").read_text())
    return {"P": [round(100 * overall.at("P", k), 2) for k in (1, 3, 5)], **figures}


def _gradient_bytes(encoder: str, way: str) -> int:
    if way in _FIXED:
        return 0
    options = dict(zip(WAYS[way][::2], WAYS[way][1::2], strict=True))
    one = Encoder.load(encoder)
    one.freeze(options.get("--train-layers", "all"))
    one.adapt(int(options.get("--lora-rank", 0)), 0)
    return sum(4 * int(np.prod(variable.shape)) for variable in one.trainable_variables)


if __name__ == "__main__":
    main()
