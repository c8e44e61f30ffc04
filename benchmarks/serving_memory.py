"""The memory of a loaded model over the size of its weights.

    python -m benchmarks.serving_memory --model MODEL [MODEL …] --texts X.tst.txt [--weights fp32 fp16 int8]

Each model is exported and loaded by TensorFlow's C functions, as a server does it, in a process of its own that has
first loaded and asked a model of twenty labels: what TensorFlow takes for itself is there by then. Then it is asked 50
texts, one at a time. Memory that was freed counts as free, though the allocator may keep it for what comes next. Prints
one JSON line:

variables_mb   the size of all weights and tables
memory_mb      what the process has grown by
graph_mb       what it grows by for another model of twenty labels: TensorFlow's own for a graph, whatever it holds
ratio          memory_mb - graph_mb over variables_mb
ratio_all      memory_mb over variables_mb
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import served


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, nargs="+", help="trained models")
    parser.add_argument("--texts", required=True, type=Path, help="texts to ask with, one per line")
    parser.add_argument("--weights", nargs="+", default=["fp32", "fp16", "int8"])
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-memory-") as work:
        small = served.small_model(a.texts, Path(work) / "small" / "1")
        another = Path(shutil.copytree(small, Path(work) / "another" / "1"))
        graph = _grown(small, another, a.texts)
        results: dict[str, Any] = {}
        for model in a.model:
            for weights in a.weights:
                folder = Path(work) / "served" / "1"
                about = served.export(model, folder, weights, 10, 10)
                grown = _grown(small, folder, a.texts)
                results[f"{Path(model).name} {weights}"] = {
                    "variables_mb": round(about["bytes"] / 1e6, 1),
                    "memory_mb": round(grown / 1e6, 1),
                    "ratio": round((grown - graph) / about["bytes"], 3),
                    "ratio_all": round(grown / about["bytes"], 3),
                }
                shutil.rmtree(folder)
    figure = {"figure": "serving_memory", "aim_ratio": 1.3, "graph_mb": round(graph / 1e6, 1)}
    print(json.dumps({**figure, "results": results}))


def _grown(small: Path, folder: Path, texts: Path) -> int:
    one = served.side(texts)
    served.load(one, small)
    grown = served.load(one, folder)
    one.close()
    return grown


if __name__ == "__main__":
    main()
