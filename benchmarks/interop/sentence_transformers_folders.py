"""Compute with sentence-transformers the embeddings that ``tests/encoder/test_folders.py`` expects.

    python -m benchmarks.interop.sentence_transformers_folders --peer PYTHON

PYTHON runs an environment with sentence-transformers 6.2.0, torch and transformers, at the versions that the written
file names. Each folder of ``tests/encoder/folders.py`` is loaded, and its ``encode_document`` embeds the texts there.
With --folder, another folder is compared with xmc_tf instead, in TensorFlow and in ONNX Runtime.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tests.encoder.folders import EXPECTED, FOLDERS, TEXTS, write_folder

# Those of `encode`, if the folder has no prompt for documents: since 5.0, an empty one is there by default.
_PEER = """
import json, sys
import sentence_transformers, torch, transformers
from sentence_transformers import SentenceTransformer
torch.set_num_threads(1)
folders, texts = json.load(sys.stdin)
found = {"versions": {one.__name__: one.__version__ for one in (sentence_transformers, torch, transformers)}}
for name, folder in folders.items():
    model = SentenceTransformer(folder, device="cpu")
    names = [one for one in ("document", "passage") if model.prompts.get(one)] or [model.default_prompt_name]
    vectors = model.encode(texts, prompt_name=names[0], normalize_embeddings=True, show_progress_bar=False)
    found[name] = [[round(float(value), 6) for value in row] for row in vectors]
json.dump(found, sys.stdout)
"""


def peers(python: str, folders: dict[str, str], texts: list[str]) -> dict:
    """Return the embeddings that sentence-transformers computes, of length 1."""
    given = json.dumps([folders, texts])
    done = subprocess.run([python, "-c", _PEER], input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with sentence-transformers")
    parser.add_argument("--folder", type=Path, help="compare this folder, and write nothing")
    options = parser.parse_args()
    if options.folder is not None:
        compare(options.peer, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: str(write_folder(name, Path(temporary, name))) for name in FOLDERS}
        found = peers(options.peer, folders, TEXTS)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(content)}" for name, content in found.items())
    EXPECTED.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def compare(python: str, folder: Path) -> None:
    """Print the largest difference of embeddings of length 1 in each runtime."""
    from tests.encoder.folders import in_all_runtimes

    texts = [*TEXTS, *Path("docs/how-to/choosing-encoders.md").read_text(encoding="utf-8").splitlines()]
    expected = np.array(peers(python, {"it": str(folder)}, texts)["it"])
    settings = json.loads((folder / "sentence_bert_config.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        found = in_all_runtimes(folder, Path(temporary), texts, settings["max_seq_length"])
    worst = {name: float(np.abs(vectors - expected).max()) for name, vectors in found.items()}
    print(json.dumps({"interop": "sentence_transformers_folders", "folder": folder.name, "texts": len(texts), **worst}))


if __name__ == "__main__":
    main()
