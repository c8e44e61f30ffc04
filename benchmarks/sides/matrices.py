"""The inputs of both sides; needs only numpy and scipy, since either side's Python runs it."""

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as smat


def load(features: Path, name: str, dense: bool) -> list[Any]:
    """Return the sparse features of a split, and the dense ones if requested."""
    sparse = smat.load_npz(features / f"X.{name}.npz").tocsr().astype(np.float32)
    sparse.sort_indices()
    return [sparse, np.load(features / f"X.{name}.dense.npy")] if dense else [sparse]


def chain(features: Path) -> list[smat.csc_matrix]:
    """Return the cluster matrices of the tree."""
    depth = json.loads((features / "hlt" / "config.json").read_text())["len"]
    return [smat.load_npz(features / "hlt" / f"C{t}.npz").tocsc().astype(np.float32) for t in range(depth)]


def labels(data: Path, name: str) -> smat.csc_matrix:
    """Return the labels of a split."""
    return smat.load_npz(data / f"Y.{name}.npz").tocsc().astype(np.float32)


def precision(predicted: smat.csr_matrix, truth: smat.spmatrix, most: int = 5) -> list[float]:
    """Return P@1 to P@most in percent."""
    truth = truth.tocsr()
    hits = np.zeros(most)
    for row in range(truth.shape[0]):
        begin, end = predicted.indptr[row], predicted.indptr[row + 1]
        best = predicted.indices[begin:end][np.argsort(-predicted.data[begin:end], kind="stable")][:most]
        hits[: len(best)] += np.isin(best, truth.indices[truth.indptr[row] : truth.indptr[row + 1]])
    return [round(100 * float(x), 2) for x in np.cumsum(hits) / np.arange(1, most + 1) / truth.shape[0]]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the duration of a call, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def peak_mb() -> float:
    """Return the peak memory of this process."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def prediction_figures(predict: Callable[[Any], Any], queries: Any, truth: Any, one: list[Any]) -> dict[str, Any]:
    """Return batch and single-query times on one thread (the best of three batches), and precision."""
    predict(one[0])
    batch = [seconds(lambda: predict(queries)) for _ in range(3)]
    single = [seconds(lambda query=query: predict(query))[0] for query in one]
    return {
        "batch_ms_per_query": round(1e3 * min(time for time, _ in batch) / truth.shape[0], 4),
        "one_query_p50_ms": round(1e3 * float(np.median(single)), 4),
        "one_query_p99_ms": round(1e3 * float(np.percentile(single, 99)), 4),
        "precision": precision(batch[0][1], truth),
        "predict_peak_mb": peak_mb(),
    }
