"""All figures that this machine can measure, one JSON line each.

    python -m benchmarks [--peer PYTHON] [--field PYTHON] [--annif PYTHON] [--torchrec PYTHON] [--data DIR]
        [--pytorch PYTHON] [--features DIR] [--model DIR] [--encoder DIR] [--large DIR] [--only NAME]

Without a peer or data, what needs them is named and left out. ``make bench BENCH_ARGS="--peer … --data …"`` calls it.
"""

import argparse
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python that has libpecos")
    parser.add_argument("--field", help="a Python that has omikuji and libpecos (answers_vs_field)")
    parser.add_argument("--annif", help="a Python that has annif, omikuji and numba (annif_backends)")
    parser.add_argument("--torchrec", help="a Python that has torchrec and fbgemm-gpu-cpu (torchrec_sequences)")
    parser.add_argument("--pytorch", help="a Python that has torch and transformers (encoder_speed)")
    parser.add_argument("--data", help="a folder of X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz (and labels.txt)")
    parser.add_argument("--features", help="X.trn.npz, X.tst.npz and a tree hlt/ for them, in PECOS's format")
    parser.add_argument("--model", help="a model trained on that data")
    parser.add_argument("--encoder", help="a folder of weights and tokenizer")
    parser.add_argument("--large", help="a folder with 5 GB of room, for data of a tenth of Amazon-3M (large_machine)")
    parser.add_argument("--only", help="run the one figure of that name")
    a = parser.parse_args()
    figures = {
        "tfidf": [f"{a.data}/X.trn.txt"] if a.data else None,
        "instant_start": [],
        "serving_latency": ["--model", a.model, "--texts", f"{a.data}/X.tst.txt"] if a.model and a.data else None,
        "serving_memory": ["--model", a.model, "--texts", f"{a.data}/X.tst.txt"] if a.model and a.data else None,
        "runtimes": ["--model", a.model, "--data", a.data] if a.model and a.data else None,
        "first_minutes": [],
        "flat_head": [],
        "growing_table": [],
        "collective_steps": [],
        "dlrm_keras": [],
        "encoder_speed": ["--peer", a.pytorch] if a.pytorch else [],
        "table_memory": [],
        "sequences_prepare": [],
        "sequences_ceiling": [],
        "torchrec_sequences": ["--peer", a.torchrec] if a.torchrec else None,
        "rankers_vs_pecos": _peer_arguments(a),
        "rankers_vs_pecos_dense": [*_peer_arguments(a), "--dense", "384"] if _peer_arguments(a) else None,
        "answers_vs_field": (
            [
                *("--data", a.data),
                *(("--field", a.field) if a.field else ()),
                *(("--encoder", a.encoder) if a.encoder else ()),
            ]
            if a.data
            else None
        ),
        "languages": ["--data", a.data, *(("--field", a.annif) if a.annif else ())] if a.data else None,
        "annif_backends": ["--data", a.data, "--annif", a.annif] if a.data and a.annif else None,
        "hidden_labels": ["--data", a.data, *(("--encoder", a.encoder) if a.encoder else ())] if a.data else None,
        "large_machine": [a.large, "--compare"] if a.large else None,
        "appending": ["--data", a.data] if a.data else None,
        "long_texts": ["--encoder", a.encoder, "--data", a.data] if a.encoder and a.data else None,
        "text_to_labels_vs_pecos": ["--peer", a.peer, "--data", a.data] if a.peer and a.data else None,
        "xtransformer_vs_pecos": (
            ["--peer", a.peer, "--data", a.data, "--encoder", a.encoder] if a.peer and a.data and a.encoder else None
        ),
    }
    failed = 0
    for name, arguments in figures.items():
        if a.only not in (None, name):
            continue
        if arguments is None:
            print(f"{name}: needs more flags, see --help", file=sys.stderr)
            continue
        module = name.removesuffix("_dense")
        failed += (
            subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *arguments], check=False).returncode != 0
        )
    sys.exit(1 if failed else 0)


def _peer_arguments(a: argparse.Namespace) -> list[str] | None:
    """Return the arguments of the comparison of rankers, if all of them are set."""
    if not (a.peer and a.data and a.features):
        return None
    return ["--peer", a.peer, "--data", a.data, "--features", a.features]


if __name__ == "__main__":
    main()
