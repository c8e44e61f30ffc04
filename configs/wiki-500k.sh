#!/bin/sh
# sh configs/wiki-500k.sh DATA MODEL [more flags]
#
# Wiki-500K: 1,779,881 training documents, 501,070 labels, with the settings that PECOS published for it (one BERT of its
# ensemble). DATA is PECOS's folder of the data set: X.trn.txt, Y.trn.npz, tfidf-attnxml/X.trn.npz, and the same for tst.
#
# Tree for the encoder   64 > 512 > 4,096 > 32,768: leaves of at most 16, levels of at most 32,768 nodes
# Tree for the rankers   8 > 256 > 8,192 > 501,070
# A step                 32 documents per rank × 8 ranks = 256; for another number of ranks change --steps-scale
# Steps                  10,000 + 10,000 + 20,000 + 20,000 = 60,000 × 256 documents = 8.6 epochs
# Finest head            32,768 rows × (768 + 1) × 4 bytes = 96.1 MiB, of which each rank holds 12.0
set -eu
DATA=$1 MODEL=$2
shift 2
horovodrun -np "${NP:-8}" -H "${HOSTS:-localhost:${NP:-8}}" \
    python -m xmc_tf.train --params-path "$(dirname "$0")/wiki-500k.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -x "$DATA/tfidf-attnxml/X.trn.npz" -y "$DATA/Y.trn.npz" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -x "$DATA/tfidf-attnxml/X.tst.npz" -y "$DATA/Y.tst.npz" \
    -o "$MODEL.npz"
