#!/bin/sh
# sh configs/amazoncat-13k.sh DATA MODEL [more flags]
#
# AmazonCat-13K: 1,186,239 training documents, 13,330 labels, with the settings that PECOS published for it (one BERT of its
# ensemble). DATA is PECOS's folder of the data set: X.trn.txt, Y.trn.npz, tfidf-attnxml/X.trn.npz, and the same for tst.
#
# Tree for the encoder   128 > 1,024 > 13,330: leaves of at most 16, levels of at most 32,768 nodes
# Tree for the rankers   128 > 1,024 > 13,330
# A step                 32 documents per rank × 8 ranks = 256; for another number of ranks change --steps-scale
# Steps                  5,000 + 10,000 + 30,000 = 45,000 × 256 documents = 9.7 epochs
# Finest head            13,330 rows × (768 + 1) × 4 bytes = 39.1 MiB, of which each rank holds 4.9
set -eu
DATA=$1 MODEL=$2
shift 2
horovodrun -np "${NP:-8}" -H "${HOSTS:-localhost:${NP:-8}}" \
    python -m xmc_tf.train --params-path "$(dirname "$0")/amazoncat-13k.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -x "$DATA/tfidf-attnxml/X.trn.npz" -y "$DATA/Y.trn.npz" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -x "$DATA/tfidf-attnxml/X.tst.npz" -y "$DATA/Y.tst.npz" \
    -o "$MODEL.npz"
