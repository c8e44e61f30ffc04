"""Check that the model is byte for byte the same on any number of ranks: a table of digests, on real data.

    python -m benchmarks.interop.digests_over_ranks [--data FOLDER …] [--ranks 1 2 3 4] [--negatives tfn tfn+man]

FOLDER holds X.trn.txt and Y.trn.npz; the demo's corpus, made of what is installed here, is always among them. Every
training is ``mpiexec -n N python -m xmc_tf.linear.train`` with one thread per rank, from TF-IDF features (sparse) and
from the same with 64 dense columns beside them, which are a random projection of them. A digest is that of all files of
the model's folder and of their names. Prints a line a training, then one JSON line; exit status 1 where two digests
differ that should not.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.distributed.launch import BIN, ENVIRONMENT
from xmc_tf.data import TextFile, save_matrix
from xmc_tf.demo.corpus import build
from xmc_tf.features import Tfidf

DENSE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", type=Path, default=[])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--negatives", nargs="+", default=["tfn", "tfn+man"])
    a = parser.parse_args()
    same, count = True, 0
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for data in [build(work / "demo"), *a.data]:
            sparse, both = write_features(data, work / f"{data.name}-features")
            for kind, features in (("sparse", sparse), ("[sparse ; dense]", both)):
                for negatives in a.negatives:
                    digests = set()
                    for ranks in a.ranks:
                        start = time.monotonic()
                        model = train(work / "model", features, data / "Y.trn.npz", negatives, ranks)
                        digest = digest_of(model)
                        digests.add(digest)
                        count += 1
                        print(
                            f"{data.name:16} {kind:16} {negatives:8} {ranks} rank{'s' if ranks > 1 else ' '}  "
                            f"{digest[:32]}  {time.monotonic() - start:6.1f} s",
                            flush=True,
                        )
                    same &= len(digests) == 1
    print(json.dumps({"interop": "digests_over_ranks", "trainings": count, "ranks": a.ranks, "same": same}))
    sys.exit(0 if same else 1)


def write_features(data: Path, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the features of a folder's training texts: sparse ones, and both kinds."""
    folder.mkdir()
    texts = TextFile(data / "X.trn.txt")
    X = Tfidf.fit(texts).transform(texts)
    projection = np.random.default_rng(0).standard_normal((X.shape[1], DENSE)).astype(np.float32)
    dense = np.asarray(X @ projection)
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9)
    sparse = folder / "X.npz"
    save_matrix(sparse, X)
    save_matrix(folder / "E.npy", dense)
    return [sparse], [sparse, folder / "E.npy"]


def train(model: Path, features: list[Path], labels: Path, negatives: str, ranks: int, *more: Any) -> Path:
    """Train over some ranks into a folder, and replace an older model."""
    command = [BIN / "mpiexec", "-n", ranks, sys.executable, "-m", "xmc_tf.linear.train", "-x", *features]
    command += ["-y", labels, "-m", model, "-ns", negatives, "-n", 1, "--verbose-level", 0, *more]
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **ENVIRONMENT})
    return model


def digest_of(folder: Path) -> str:
    """Return a digest of all files of a folder and their names."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            total.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return total.hexdigest()


if __name__ == "__main__":
    main()
