"""All figures that this machine can measure, one JSON line each.

    python -m benchmarks [--peer PYTHON] [--field PYTHON] [--annif PYTHON] [--torchrec PYTHON] [--pytorch PYTHON]
        [--data DIR] [--features DIR] [--model DIR] [--encoder DIR] [--large DIR] [--only NAME]

A figure that needs a flag that is not given is named and left out. ``make bench BENCH_ARGS="--peer … --data …"`` calls
it.
"""

import argparse
import subprocess
import sys

FLAGS = {
    "peer": "a Python that has libpecos",
    "field": "a Python that has omikuji and libpecos (answers_vs_field)",
    "annif": "a Python that has annif, omikuji and numba (annif_backends)",
    "torchrec": "a Python that has torchrec and fbgemm-gpu-cpu (torchrec_sequences)",
    "pytorch": "a Python that has torch and transformers (encoder_speed)",
    "data": "a folder of X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz (and labels.txt)",
    "features": "X.trn.npz, X.tst.npz and a tree hlt/ for them, in PECOS's format",
    "model": "a model trained on that data",
    "encoder": "a folder of weights and tokenizer",
    "large": "a folder with 5 GB of room, for data of a tenth of Amazon-3M (large_machine)",
}
# The arguments of each figure. A word in braces is the value of that flag, without which the figure is left out.
FIGURES = {
    "tfidf": "{data}/X.trn.txt",
    "instant_start": "",
    "serving_latency": "--model {model} --texts {data}/X.tst.txt",
    "first_minutes": "",
    "dlrm_keras": "",
    "encoder_speed": "--peer {pytorch}",
    "torchrec_sequences": "--peer {torchrec}",
    "rankers_vs_pecos": "--peer {peer} --data {data} --features {features}",
    "answers_vs_field": "--data {data} --field {field}",
    "annif_backends": "--data {data} --annif {annif}",
    "large_machine": "{large} --compare",
    "text_to_labels_vs_pecos": "--peer {peer} --data {data}",
    "xtransformer_vs_pecos": "--peer {peer} --data {data} --encoder {encoder}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, text in FLAGS.items():
        parser.add_argument(f"--{name}", help=text)
    parser.add_argument("--only", choices=list(FIGURES), help="run this figure alone")
    a = parser.parse_args()
    given = {name: value for name, value in vars(a).items() if value is not None}
    failed = False
    for name in [a.only] if a.only else FIGURES:
        try:
            arguments = [part.format_map(given) for part in FIGURES[name].split()]
        except KeyError as error:
            print(f"{name}: needs --{error.args[0]}", file=sys.stderr)
            continue
        failed |= subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments]).returncode != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
