#!/bin/sh
# sh configs/demo.sh DATA MODEL [more flags]
#
# What `make demo` trains, on the data that it leaves in demo-work/data: X.trn.txt, Y.trn.npz, labels.txt and the same of
# tst. Everything is the default but for the encoder, its 64 tokens a text, and a single pass.
#
# Tree for the encoder   one level, all labels: they are fewer than max_match_clusters, and every one is a candidate
# A step                 32 texts on one worker, of like length
# Finest head            labels × (384 + 1) × 4 bytes: 1.5 MiB for 1,000 labels
#
# Where there is no network, put the folder of an encoder into demo.json as its model_shortcut.
set -eu
DATA=$1 MODEL=$2
shift 2
python -m xmc_tf.train --params-path "$(dirname "$0")/demo.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -y "$DATA/Y.trn.npz" --labels "$DATA/labels.txt" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -y "$DATA/Y.tst.npz" -o "$MODEL.npz"
