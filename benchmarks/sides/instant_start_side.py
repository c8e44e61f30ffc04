"""One process of ``instant_start``: load a model, answer queries, say how long it took and the memory it needs."""

import sys
import time

folder, model_folder, what, started = sys.argv[1:]

from pathlib import Path  # noqa: E402

from xmc_tf.data import as_features, load_matrix  # noqa: E402
from xmc_tf.models.xr_linear import XRLinear  # noqa: E402
from xmc_tf.rankers.xlinear import XLinear  # noqa: E402


def memory() -> int:
    """Return the memory of this process, a page that n processes share counted as 1/n."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    if what == "text":
        text = (Path(folder) / "queries.txt").read_text(encoding="utf-8").splitlines()[0]
        XRLinear.load(model_folder).best([text], 5, threads=1)
    else:
        X = as_features(load_matrix(Path(folder) / "queries.npz"))
        ranker = XLinear.load(Path(model_folder) / "ranker")
        ranker.predict(X.rows(slice(0, 1)), threads=1)
    found = {"first_answer_s": round(time.time() - float(started), 3), "cpu_s": round(time.process_time(), 3)}
    if what == "all":
        import hashlib

        P = ranker.predict(X, threads=1)
        found["nr_weights"], found["pss"] = ranker.nr_weights, memory()
        found["digest"] = hashlib.sha256(P.indices.tobytes() + P.data.tobytes()).hexdigest()
        found["batch_per_s"] = round(max(_speed(lambda: ranker.predict(X, threads=1), X.nr_rows) for _ in range(3)))
        rows = [X.rows(slice(row, row + 1)) for row in range(min(2000, X.nr_rows))]
        found["single_per_s"] = round(
            max(_speed(lambda: [ranker.search(row, threads=1) for row in rows], len(rows)) for _ in range(3))
        )
        found["single_matrix_per_s"] = round(
            max(_speed(lambda: [ranker.predict(row, threads=1) for row in rows], len(rows)) for _ in range(3))
        )
    import json

    print(json.dumps(found), flush=True)
    for _ in sys.stdin:
        print(memory(), flush=True)


def _speed(run: object, count: int) -> float:
    start = time.process_time()
    run()
    return count / (time.process_time() - start)


if __name__ == "__main__":
    main()
