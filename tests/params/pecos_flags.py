"""All flags of PECOS's command lines (libpecos 1.2.8), with a value other than the default for each.

``python -m benchmarks.interop.pecos_flags`` compares this list with PECOS's own parsers.
"""

_XLINEAR_TRAIN = {
    "--generate-params-skeleton": None, "--params-path": "p.json", "-x": "X", "--inst-path": "X", "-y": "Y",
    "--label-path": "Y", "-m": "M", "--model-folder": "M", "-f": "Z", "--label-feat-path": "Z", "--nr-splits": "4",
    "--max-leaf-size": "7", "--spherical": "false", "--seed": "3", "--kmeans-max-iter": "5", "-n": "2",
    "--threads": "2", "-c": "C", "--code-path": "C", "-r": "R", "--rel-path": "R", "--rel-norm": "l1",
    "--rel-mode": "induce", "-um": "U", "--usn-match-path": "U", "-uy": "U", "--usn-label-path": "U",
    "-s": "L2R_LR_DUAL", "--solver-type": "L2R_L1LOSS_SVC_DUAL", "--Cp": "2", "--Cn": "3", "--bias": "0.5",
    "-ns": "usn+tfn+man", "--negative-sampling": "man", "-t": "0.2", "--threshold": "0.2", "-z": "9",
    "--max-nonzeros-per-label": "9", "-k": "6", "--only-topk": "6", "-b": "5", "--beam-size": "5", "-pp": "sigmoid",
    "--post-processor": "log-l4-hinge", "--verbose-level": "2",
}  # fmt: skip
_XTRANSFORMER_TRAIN = {
    "--generate-params-skeleton": None, "--params-path": "p.json", "-t": "t", "--trn-text-path": "t", "-x": "X",
    "--trn-feat-path": "X", "-y": "Y", "--trn-label-path": "Y", "-m": "M", "--model-dir": "M", "-tt": "t",
    "--tst-text-path": "t", "-xt": "X", "--tst-feat-path": "X", "-yt": "Y", "--tst-label-path": "Y",
    "--fix-clustering": "true", "--code-path": "C", "--label-feat-path": "Z", "--nr-splits": "4", "--min-codes": "8",
    "--max-leaf-size": "7", "--max-match-clusters": "64", "--do-fine-tune": "false", "--model-shortcut": "roberta-base",
    "--init-model-dir": "D", "--only-encoder": "true", "-b": "5", "--beam-size": "5", "-k": "6", "--only-topk": "6",
    "-pp": "sigmoid", "--post-processor": "l3-hinge", "-ns": "tfn+man", "--negative-sampling": "man",
    "--ensemble-method": "rank_average", "--threshold": "0.2", "--loss-function": "weighted-hinge", "--cache-dir": "D",
    "--saved-trn-pt": "F", "--saved-val-pt": "F", "--truncate-length": "64", "--hidden-dropout-prob": "0.2",
    "--batch-size": "8", "--gradient-accumulation-steps": "2", "--learning-rate": "0.001", "--weight-decay": "0.01",
    "--adam-epsilon": "1e-6", "--max-grad-norm": "2", "--num-train-epochs": "7", "--max-steps": "9",
    "--max-no-improve-cnt": "2", "--lr-schedule": "cosine_with_restarts", "--warmup-steps": "3",
    "--logging-steps": "4", "--save-steps": "5", "--max-active-matching-labels": "99",
    "--max-num-labels-in-gpu": "1000", "--use-gpu": "false", "--bootstrap-method": "no-bootstrap",
    "--batch-gen-workers": "2", "--seed": "3", "--verbose-level": "2",
}  # fmt: skip
_XTRANSFORMER_PREDICT = {
    "-x": "X", "--feat-path": "X", "-t": "t", "--text-path": "t", "-m": "M", "--model-folder": "M", "-o": "o",
    "--save-pred-path": "o", "--batch-size": "8", "--max-pred-chunk": "100", "--only-topk": "6", "-b": "5",
    "--beam-size": "5", "-pp": "sigmoid", "--post-processor": "l3-hinge", "--use-gpu": "false",
    "--batch-gen-workers": "2", "--threads": "2", "--seed": "3", "--verbose-level": "2",
}  # fmt: skip
_XTRANSFORMER_ENCODE = {
    "-t": "t", "--text-path": "t", "-m": "M", "--model-folder": "M", "-o": "o", "--save-emb-path": "o",
    "--batch-size": "8", "--use-gpu": "false", "--batch-gen-workers": "2", "--max-pred-chunk": "100",
    "--verbose-level": "2",
}  # fmt: skip
_DISTRIBUTED_ENCODE = {
    "-t": "t", "--text-path": "t", "-m": "M", "--model-folder": "M", "-o": "o", "--save-emb-folder": "o",
    "--batch-size": "8", "--batch-gen-workers": "2", "--truncate-length": "64", "--max-pred-chunk": "100",
    "--verbose-level": "2", "--local_rank": "1",
}  # fmt: skip
_XLINEAR_PREDICT = {
    "-x": "X", "--inst-path": "X", "-m": "M", "--model-folder": "M", "-k": "6", "--only-topk": "6", "-b": "5",
    "--beam-size": "5", "-pp": "sigmoid", "--post-processor": "l3-hinge", "-y": "Y", "--label-path": "Y", "-o": "o",
    "--save-pred-path": "o", "-B": "100", "--max-pred-chunk": "100", "-n": "2", "--threads": "2", "-so": "S",
    "--selected-output": "S",
}  # fmt: skip

_PREPROCESS_BUILD = {
    "-i": "t", "--input-text-path": "t", "--vectorizer-config-path": "c", "--vectorizer-config-json": "{}", "-m": "M",
    "--output-model-folder": "M", "--maxsplit": "1", "--text-pos": "0", "-t": "float64", "--dtype": "float64",
    "--from-file": "true",
}  # fmt: skip
_PREPROCESS_RUN = {
    "-p": "M", "--input-preprocessor-folder": "M", "-i": "t", "--input-text-path": "t", "-x": "X",
    "--output-inst-path": "X", "--maxsplit": "1", "--text-pos": "0", "-l": "L", "--label-text-path": "L", "-y": "Y",
    "--output-label-path": "Y", "-r": "R", "--output-rel-path": "R", "--label-pos": "1", "--batch-size": "4",
    "--use-gpu": "false", "--threads": "2", "--from-file": "true", "--buffer-size": "4096",
}  # fmt: skip

# PECOS's module → ours.
OUR_COMMANDS = {
    "pecos.xmc.xlinear.train": "linear.train",
    "pecos.xmc.xlinear.predict": "linear.predict",
    "pecos.xmc.xlinear.evaluate": "linear.evaluate",
    "pecos.xmc.xtransformer.train": "train",
    "pecos.xmc.xtransformer.predict": "predict",
    "pecos.xmc.xtransformer.encode": "encode",
    "pecos.distributed.xmc.xlinear.train": "linear.train",
    "pecos.distributed.xmc.xtransformer.train": "train",
    "pecos.distributed.xmc.xtransformer.encode": "encode",
    "pecos.utils.featurization.text.preprocess build": "preprocess build",
    "pecos.utils.featurization.text.preprocess run": "preprocess run",
}
PECOS_FLAGS = {
    "pecos.xmc.xlinear.train": _XLINEAR_TRAIN,
    "pecos.xmc.xlinear.predict": _XLINEAR_PREDICT,
    "pecos.xmc.xlinear.evaluate": {
        "-y": "Y", "--truth-path": "Y", "-p": "P", "--pred-path": "P", "-k": "3", "--topk": "3", "--only-topk": "3",
    },
    "pecos.xmc.xtransformer.train": _XTRANSFORMER_TRAIN,
    "pecos.xmc.xtransformer.predict": _XTRANSFORMER_PREDICT,
    "pecos.xmc.xtransformer.encode": _XTRANSFORMER_ENCODE,
    "pecos.distributed.xmc.xlinear.train": {
        **_XLINEAR_TRAIN, "-nst": "8", "--min-n-sub-tree": "8", "-mle": "pii", "--meta-label-embedding-method": "pii",
        "-sle": "pii", "--sub-label-embedding-method": "pii", "-mwf": "0.5", "--main-workload-factor": "0.5",
    },
    "pecos.distributed.xmc.xtransformer.train": {
        **_XTRANSFORMER_TRAIN, "--hostfile": "H", "--fp16": "true", "--shard-scheme": "ordered",
        "--shared-workdir": "W", "--max-shard-size": "100",
    },
    "pecos.distributed.xmc.xtransformer.encode": _DISTRIBUTED_ENCODE,
    "pecos.utils.featurization.text.preprocess build": _PREPROCESS_BUILD,
    "pecos.utils.featurization.text.preprocess run": _PREPROCESS_RUN,
}  # fmt: skip
