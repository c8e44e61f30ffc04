#!/bin/sh
# sh configs/eurlex-4k.sh DATA MODEL [more flags]
#
# Eurlex-4K: 15,449 training documents, 3,956 labels, with the settings that PECOS published for it (one BERT of its
# ensemble). DATA is PECOS's folder of the data set: X.trn.txt, Y.trn.npz, tfidf-attnxml/X.trn.npz, and the same for tst.
#
# Tree for the encoder   16 > 256 > 3,956: leaves of at most 16, levels of at most 32,768 nodes
# Tree for the rankers   4 > 32 > 256 > 3,956
# A step                 32 documents per rank × 8 ranks = 256; for another number of ranks change --steps-scale
# Steps                  600 + 800 + 1,200 = 2,600 × 256 documents = 43.1 epochs
# Finest head            3,956 rows × (768 + 1) × 4 bytes = 11.6 MiB, of which each rank holds 1.5
set -eu
DATA=$1 MODEL=$2
shift 2
horovodrun -np "${NP:-8}" -H "${HOSTS:-localhost:${NP:-8}}" \
    python -m xmc_tf.train --params-path "$(dirname "$0")/eurlex-4k.json" -m "$MODEL" \
    -t "$DATA/X.trn.txt" -x "$DATA/tfidf-attnxml/X.trn.npz" -y "$DATA/Y.trn.npz" "$@"
python -m xmc_tf.predict -m "$MODEL" -t "$DATA/X.tst.txt" -x "$DATA/tfidf-attnxml/X.tst.npz" -y "$DATA/Y.tst.npz" \
    -o "$MODEL.npz"
