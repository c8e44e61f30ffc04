"""From text to labels on one thread, one text at a time and 64: models as a server has them, and libpecos beside them.

    python -m benchmarks.serving_latency --keep FOLDER [--rankers DATA] [--data DATA --encoder FOLDER]
        [--peer PYTHON] [--weights fp16]
    python -m benchmarks.serving_latency --model MODEL --texts X.tst.txt

``--rankers``: a model of linear rankers alone is trained on that data. ``--data`` and ``--encoder``: one of TF-IDF and
the encoder as it comes, and with ``--peer`` the same on libpecos's XTransformer, by the same settings.
What was trained is kept in FOLDER, and a second run takes seconds. ``--model`` measures one that there is.

Ours is exported, and loaded with the settings of launch/serving. Every process runs on one core. The two sides are
asked the same texts in turns, some at a time. Prints one JSON line: times by the clock, and (cpu) of the process
itself, which tell more on a machine that others use.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sides.in_turns import Side

_AIMS = {"rankers": {"aim_batch_1_p50_ms": 2.0}, "transformer": {"aim_ratio_p50": 0.5}}
_PEER = Path(__file__).parent / "sides" / "peer_served_side.py"
_SIDE = _PEER.with_name("served_side.py")
_CONFIG = Path(__file__).resolve().parents[1] / "launch" / "serving" / "session.config"
_BATCH, _WARM_UP = 64, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="where trained models are kept")
    parser.add_argument("--rankers", type=Path, help="data for linear rankers alone")
    parser.add_argument("--data", type=Path, help="data for a model with an encoder: X.trn.txt, Y.trn.npz, X.tst.txt")
    parser.add_argument("--encoder", type=Path, help="its weights and tokenizer")
    parser.add_argument("--peer", help="a Python that has libpecos, scikit-learn and transformers")
    parser.add_argument("--model", help="one trained model's folder, in place of all that")
    parser.add_argument("--texts", type=Path, help="texts to ask it with, one per line")
    parser.add_argument("--weights", default="fp32", help="fp32 (default), fp16 or int8")
    parser.add_argument("-k", type=int, default=10, help="labels a text (default 10)")
    parser.add_argument("-b", type=int, default=10, help="beam (default 10)")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text that are read (default 64)")
    parser.add_argument("--leaf", type=int, default=16, help="most labels of a leaf with the encoder (default 16)")
    parser.add_argument("--requests", type=int, default=500, help="requests of one text (default 500)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default 5)")
    a = parser.parse_args()
    if bool(a.model) != bool(a.texts) or not (a.model or (a.keep and (a.rankers or (a.data and a.encoder)))):
        parser.error("give --model and --texts, or --keep with --rankers, or with --data and --encoder")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="xmc-tf-served-") as work:
        if a.model:
            results["model"] = _measured({"ours": _ours(Path(work) / "model" / "1", a.model, a.texts, a)}, a)
        if a.rankers:
            model = _kept(a.keep / f"rankers-{a.rankers.name}", "xmc_tf.linear.train", a.rankers)
            one = _ours(Path(work) / "rankers" / "1", model, a.rankers / "X.tst.txt", a)
            results["rankers"] = _measured({"ours": one}, a) | _AIMS["rankers"]
        if a.data and a.encoder:
            recipe = ["--no-fine-tune", "--model-shortcut", a.encoder.resolve(), "--truncate-length", a.length]
            recipe += ["--max-leaf-size", a.leaf, "--threshold", "0.01"]
            model = _kept(a.keep / f"transformer-{a.data.name}", "xmc_tf.train", a.data, *recipe)
            sides = {"ours": _ours(Path(work) / "transformer" / "1", model, a.data / "X.tst.txt", a)}
            if a.peer:
                sides["peer"] = _peers(a)
            results["transformer"] = _measured(sides, a) | _AIMS["transformer"]
    print(json.dumps({"figure": "serving_latency", "weights": a.weights, "k": a.k, "beam": a.b, **results}))


def _kept(folder: Path, module: str, data: Path, *flags: Any) -> Path:
    """Return a model that is trained once; an interrupted training is resumed."""
    if not (folder / "params.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run(module, "-t", data / "X.trn.txt", "-y", data / "Y.trn.npz", "-m", folder, *flags)
    return folder


def _ours(folder: Path, model: Path | str, texts: Path, a: argparse.Namespace) -> Side:
    _run("xmc_tf.export", "-m", model, "-o", folder, "-k", a.k, "-b", a.b, "--weights", a.weights)
    threads = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "1")}
    return Side([sys.executable, *map(str, (_SIDE, folder, texts.resolve(), _CONFIG))], threads)


def _run(module: str, *arguments: Any) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=True, stdout=sys.stderr)


def _peers(a: argparse.Namespace) -> Side:
    keep = a.keep / f"peer-{a.data.name}"
    given = [keep, a.data, a.encoder.resolve(), a.length, a.leaf, a.k, a.b]
    return Side([a.peer, str(_PEER), *map(str, given)], {"OMP_NUM_THREADS": "1"} if _trained(keep) else {})


def _trained(peer: Path) -> bool:
    return (peer / "vectorizer.pkl").exists()


def _measured(sides: dict[str, Side], a: argparse.Namespace) -> dict[str, Any]:
    """Query all sides in turns; return their times, and the ratio of two sides."""
    out: dict[str, Any] = {name: {} for name in sides}
    for batch, requests in ((1, a.requests), (_BATCH, max(a.requests // 25, a.rounds))):
        each = -(-requests // a.rounds)
        seconds: dict[str, Any] = {name: {"wall": [], "cpu": []} for name in sides}
        for side in sides.values():
            side.ask(first=0, count=_WARM_UP, batch=batch)
        for number in range(a.rounds):
            print(f"batches of {batch}: round {number + 1} of {a.rounds}", file=sys.stderr)
            for name, side in sides.items():
                found = side.ask(first=number * each, count=each, batch=batch)
                for kind, values in found.items():
                    seconds[name][kind] += values
        for name, kinds in seconds.items():
            out[name][f"batch_{batch}"] = _figures(kinds["wall"], kinds["cpu"], batch)
    for side in sides.values():
        side.close()
    if "peer" in out:
        out["ratio_p50"], out["ratio_p99"] = (
            round(out["ours"]["batch_1"][at] / out["peer"]["batch_1"][at], 3) for at in ("p50_ms", "p99_ms")
        )
        out["ratio_cpu_p50"] = round(out["ours"]["batch_1"]["cpu_p50_ms"] / out["peer"]["batch_1"]["cpu_p50_ms"], 3)
    return out


def _figures(wall: list[float], own: list[float], batch: int) -> dict[str, float]:
    at = {
        f"{prefix}p{share}_ms": round(1000 * float(np.percentile(values, share)), 3)
        for prefix, values in (("", wall), ("cpu_", own))
        for share in (50, 99)
    }
    if batch > 1:
        at["texts_a_second"] = round(1000 * batch / at["p50_ms"])
    return at


if __name__ == "__main__":
    main()
