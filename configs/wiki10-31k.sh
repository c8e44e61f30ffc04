#!/bin/sh
# sh configs/wiki10-31k.sh DATA MODEL [more flags]
#
# Wiki10-31K: 14,146 training documents, 30,938 labels, with the settings that PECOS published for it (one BERT of its
# ensemble). DATA is PECOS's folder of the data set: X.trn.txt, Y.trn.npz, tfidf-attnxml/X.trn.npz, and the same for tst.
#
# Tree for the encoder   128 > 2,048 > 30,938: leaves of at most 16, levels of at most 32,768 nodes
# Tree for the rankers   8 > 128 > 2,048 > 30,938
# A step                 32 documents per rank × 8 ranks = 256; for another number of ranks change --steps-scale
# Steps                  1,000 + 1,000 + 400 = 2,400 × 256 documents = 43.4 epochs
# Finest head            30,938 rows × (768 + 1) × 4 bytes = 90.8 MiB, of which each rank holds 11.3
set -eu
DATA=$1 MODEL=$2
shift 2
horovodrun -np "${NP:-8}" -H "${HOSTS:-localhost:${NP:-8}}" \
    python -m xmc_tf.train --params-path "$(dirname "$0")/wiki10-31k.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -x "$DATA/tfidf-attnxml/X.trn.npz" -y "$DATA/Y.trn.npz" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -x "$DATA/tfidf-attnxml/X.tst.npz" -y "$DATA/Y.tst.npz" \
    -o "$MODEL.npz"
