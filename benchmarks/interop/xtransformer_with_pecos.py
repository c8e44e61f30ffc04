"""Check that models trained by PECOS's XR-Transformer predict the same in xmc_tf.

    python -m benchmarks.interop.xtransformer_with_pecos --peer PYTHON [--architectures bert roberta …] [--keep DIR]

PYTHON runs an environment with libpecos, torch and transformers 4.44. PECOS trains small models on 300 made-up
documents: with every architecture that it knows; with sparse, dense and no features; with weights as safetensors and as
``pytorch_model.bin``; with a label head of labels and of clusters; without fine-tuning; without rankers. Each is loaded
with ``XTransformer.load`` from PECOS's folder, and again from the copy that ``save`` writes in our own format. One JSON
line a case gives the largest differences; the exit status is 1 where a label differs or a score by more than 1e-4.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import load_matrix
from xmc_tf.models.xtransformer import XTransformer

_TOLERANCE = 1e-4
_ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "distilbert", "xlnet")
_SIDE = Path(__file__).with_name("xtransformer_peer_side.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with libpecos, torch and transformers")
    parser.add_argument("--architectures", nargs="+", choices=_ARCHITECTURES, default=list(_ARCHITECTURES))
    parser.add_argument("--keep", type=Path, help="where the models of PECOS stay; those there are used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        record = folder / "cases.json"
        if not record.exists():
            make_corpus(folder)
            record.write_text(json.dumps(_train(options.peer, folder, options.architectures)))
        agree = []
        for case in json.loads(record.read_text()):
            result = compare(folder, case)
            print(json.dumps({"interop": "xtransformer_with_pecos", **result}), flush=True)
            agree.append(result["agrees"])
    sys.exit(0 if all(agree) else 1)


def make_corpus(folder: Path) -> None:
    """300 documents to train on and 100 to predict, on 12 topics, with 48 labels."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = sorted({"".join(random.choice(syllables, random.integers(2, 5))) for _ in range(500)})
    topics = [random.choice(words, 15) for _ in range(12)]
    for part, count in (("trn", 300), ("tst", 100)):
        topic = random.integers(0, 12, count)
        texts = [
            " ".join([*random.choice(words, random.integers(1, 25)), *random.choice(topics[t], 6)]).capitalize() + "."
            for t in topic
        ]
        texts[0] = ""
        (folder / f"X.{part}.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        X = np.zeros((count, len(words)), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().removesuffix(".").split():
                X[row, words.index(word)] += 1
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
        smat.save_npz(folder / f"X.{part}.npz", smat.csr_matrix(X), compressed=False)
        Y = np.zeros((count, 48), np.float32)
        for copy in range(4):
            Y[np.arange(count), copy * 12 + topic] = random.random(count) < (1.0, 0.5, 0.3, 0.3)[copy]
        smat.save_npz(folder / f"Y.{part}.npz", smat.csr_matrix(Y), compressed=False)


def _train(peer: str, folder: Path, architectures: list[str]) -> list[str]:
    """Return the models of PECOS, and what it predicts with them."""
    done = subprocess.run(
        [peer, _SIDE, folder, *architectures], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def compare(folder: Path, case: str) -> dict[str, object]:
    """One model: PECOS's embeddings and predictions beside ours."""
    place = folder / case
    texts = (folder / "X.tst.txt").read_text(encoding="utf-8").splitlines()
    X = next((load_matrix(path) for path in (place / "X.npz", place / "X.npy") if path.exists()), None)
    loaded = XTransformer.load(place / "model")
    found: dict[str, object] = {"case": case, "documents": len(texts)}
    theirs = np.load(place / "E.npy")
    theirs /= np.maximum(np.linalg.norm(theirs, axis=1, keepdims=True), 1e-12)
    found["largest_embedding_difference"] = float(np.abs(loaded.encode(texts) - theirs).max())
    agrees = found["largest_embedding_difference"] <= _TOLERANCE
    with tempfile.TemporaryDirectory() as temporary:
        loaded.save(Path(temporary) / "model")
        for name, model in (("", loaded), ("_after_save", XTransformer.load(Path(temporary) / "model"))):
            for method, file in (("concat-only", "P.npz"), ("transformer-only", "H.npz")):
                if (place / file).exists():
                    given = X if method == "concat-only" else None
                    ours = model.predict(texts, given, ensemble_method=method)
                    differing, worst = _differences(ours, smat.load_npz(place / file).tocsr())
                    found |= {f"{method}{name}": {"rows_with_other_labels": differing, "largest_difference": worst}}
                    agrees &= differing == 0 and worst <= _TOLERANCE
    return {**found, "agrees": bool(agrees)}


def _differences(ours: smat.csr_matrix, theirs: smat.csr_matrix) -> tuple[int, float]:
    """Rows with other labels (unless their scores tie with the last one), and the largest difference of scores."""
    if ours.shape != theirs.shape:
        return ours.shape[0], float("inf")
    worst, differing = 0.0, 0
    for i in range(ours.shape[0]):
        a = dict(zip(*(part[slice(*ours.indptr[i : i + 2])] for part in (ours.indices, ours.data)), strict=True))
        b = dict(zip(*(part[slice(*theirs.indptr[i : i + 2])] for part in (theirs.indices, theirs.data)), strict=True))
        last = min(b.values(), default=0.0)
        differing += len(a) != len(b) or any(abs({**a, **b}[one] - last) > _TOLERANCE for one in a.keys() ^ b.keys())
        worst = max([worst, *(float(abs(a[one] - b[one])) for one in a.keys() & b.keys())])
    return differing, worst


if __name__ == "__main__":
    main()
