"""An exported model on one thread: the time from text to labels, one text at a time and 64, and its memory.

    python -m tests.benchmarks.serving_latency --model model --texts X.tst.txt [--weights fp16]

Exports the model (of xmc_tf.linear.train or xmc_tf.train) to a temporary folder, and asks it in a process of its own
that has TensorFlow and nothing of this package, as a server has it: by a session. Prints one JSON line. The times are
those of the clock and (cpu) of the process itself, which tell more on a machine that others use too.

``memory_ratio`` is what the process takes for the loaded model, asked one text at a time, over the size of all its
variables: what is more than after the same requests to a model of twenty labels, which is TensorFlow's own footprint.
``memory_batch_64_mb`` is what it has kept after batches of 64, their workspace included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf import export
from xmc_tf.data import TextFile
from xmc_tf.linear.text_ranker import train_on_text
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.serving.local import ABOUT

_SERVER = """
import json, os, resource, sys, time
import numpy as np
import tensorflow as tf
import tensorflow_text
folder, small, texts_file, requests = *sys.argv[1:4], int(sys.argv[4])
v1 = tf.compat.v1
one = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
texts = open(texts_file, "rb").read().split(b"\\n")[:-1]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def ask(folder):
    session = v1.Session(graph=tf.Graph(), config=one)
    with session.graph.as_default():
        meta = v1.saved_model.loader.load(session, ["serve"], folder)
    definition = meta.signature_def["serving_default"]
    fetches = [definition.outputs[name].name for name in ("labels", "scores", "names")]
    return session.make_callable(fetches, feed_list=[definition.inputs["text"].name])

call = ask(small)
def times(batch, count):
    wall, own = [], []
    for i in range(count + 20):
        at = i * batch % max(len(texts) - batch, 1)
        part = np.array(texts[at : at + batch], object)
        w, c = time.perf_counter(), time.process_time()
        call(part)
        own.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    at = lambda values, share: round(1000 * float(np.percentile(values[20:], share)), 3)
    return {"p50_ms": at(wall, 50), "p99_ms": at(wall, 99), "cpu_p50_ms": at(own, 50), "cpu_p99_ms": at(own, 99)}

times(1, 50)
before = resident()
call = ask(folder)
out = {"batch_1": times(1, requests)}
out["memory"] = resident() - before
out["batch_64"] = times(64, max(20, requests // 20))
out["batch_64"]["texts_a_second"] = round(64000 / out["batch_64"]["cpu_p50_ms"])
out["memory_64"] = resident() - before
print(json.dumps(out))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a trained model's folder")
    parser.add_argument("--texts", required=True, type=Path, help="texts to ask with, one a line")
    parser.add_argument("--weights", default="fp32", help="fp32 (default), fp16 or int8")
    parser.add_argument("-k", type=int, default=10, help="labels a text (default 10)")
    parser.add_argument("-b", type=int, default=10, help="beam (default 10)")
    parser.add_argument("--requests", type=int, default=1000, help="requests of one text (default 1000)")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "1"
        sys.stdout.flush()
        shown = os.dup(1)
        os.dup2(2, 1)  # the one line on standard output is the figure
        export.main(["-m", a.model, "-o", str(folder), "-k", str(a.k), "-b", str(a.b), "--weights", a.weights])
        sys.stdout.flush()
        os.dup2(shown, 1)
        small = _small_model(a.texts, Path(scratch) / "small")
        about = json.loads((folder / ABOUT).read_text())
        environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        run = subprocess.run(
            [sys.executable, "-c", _SERVER, str(folder), str(small), str(a.texts.resolve()), str(a.requests)],
            stdout=subprocess.PIPE, text=True, check=True, cwd=scratch, env=environment,
        )  # fmt: skip
    measured = json.loads(run.stdout.splitlines()[-1])
    loaded, after_batches = measured.pop("memory"), measured.pop("memory_64")
    figure = {
        "figure": "serving_latency",
        "labels": about["nr_labels"],
        "levels": about["nodes"],
        "weights": a.weights,
        "k": a.k,
        "beam": a.b,
        **measured,
        "aim_batch_1_p50_ms": 2.0,
        "variables_mb": round(about["bytes"] / 1e6, 1),
        "memory_mb": round(loaded / 1e6, 1),
        "memory_batch_64_mb": round(after_batches / 1e6, 1),
        "memory_ratio": round(loaded / about["bytes"], 2),
        "aim_memory_ratio": 1.3,
    }
    print(json.dumps(figure))


def _small_model(texts: Path, folder: Path) -> Path:
    """Twenty labels on the first texts."""
    lines = list(TextFile(texts).lines(0, 300))
    places = np.arange(len(lines))
    Y = csr_matrix((np.ones(len(lines), np.float32), (places, places % 20)), shape=(len(lines), 20))
    tree = HierarchicalKMeansParams(nr_splits=4, max_leaf_size=3)
    train_on_text(lines, Y, tree_params=tree).export(folder)
    return folder


if __name__ == "__main__":
    main()
