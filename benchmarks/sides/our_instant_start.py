"""One process of ``instant_start``: load a model, answer queries, and report time and memory, also when asked again."""

import json
import sys
import time
from pathlib import Path

from xmc_tf.data import as_features, load_matrix
from xmc_tf.rankers.xlinear import XLinear


def memory() -> int:
    """Return the memory of this process, a page that n processes share counted as 1/n."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def speed(run: object, count: int) -> int:
    """Return the most queries per processor second of three runs."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return round(count / min(taken))


folder, started = Path(sys.argv[1]), float(sys.argv[2])
X = as_features(load_matrix(folder / "queries.npz"))
ranker = XLinear.load(folder / "model" / "ranker")
ranker.predict(X.rows(slice(0, 1)), threads=1)
found = {"first_answer_s": round(time.time() - started, 3), "first_answer_cpu_s": round(time.process_time(), 3)}
P = ranker.predict(X, threads=1)
rows = [X.rows(slice(row, row + 1)) for row in range(min(2000, X.nr_rows))]
print(json.dumps({
    **found, "weights": 8 * ranker.nr_weights, "memory": memory(), "best": P.indices[P.indptr[:-1]].tolist(),
    "batch_per_s": speed(lambda: ranker.predict(X, threads=1), X.nr_rows),
    "single_per_s": speed(lambda: [ranker.search(row, threads=1) for row in rows], len(rows)),
    "single_matrix_per_s": speed(lambda: [ranker.predict(row, threads=1) for row in rows], len(rows)),
    "settings": [str(level.pred_params.only_topk) for level in ranker.levels[-2:]],
}), flush=True)  # fmt: skip
for _ in sys.stdin:
    print(memory(), flush=True)
