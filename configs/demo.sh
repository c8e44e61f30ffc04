#!/bin/sh
# sh configs/demo.sh DATA MODEL [more flags]
#
# The model of `make demo`, trained on its data in demo-work/data: X.trn.txt, Y.trn.npz, labels.txt, X.tst.txt, Y.tst.npz.
# All options are defaults except for the encoder, 64 tokens per document, and one epoch.
#
# Tree for the encoder   one level with all labels, fewer than max_match_clusters; all are candidates
# A step                 32 documents of similar length on one rank
# Finest head            labels × (384 + 1) × 4 bytes: 1.5 MiB for 1,000 labels
#
# Without a network, set model_shortcut in demo.json to the folder of an encoder.
set -eu
DATA=$1 MODEL=$2
shift 2
python -m xmc_tf.train --params-path "$(dirname "$0")/demo.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -y "$DATA/Y.trn.npz" --labels "$DATA/labels.txt" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -y "$DATA/Y.tst.npz" -o "$MODEL.npz"
