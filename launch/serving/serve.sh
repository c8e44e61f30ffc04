#!/bin/bash
# Starts tensorflow_model_server with the settings beside this file; more flags may follow, and go before.
#
#   launch/serving/serve.sh                                        # settings from /config, as in the image
#   CONFIG=launch/serving launch/serving/serve.sh --rest_api_port=9501
set -euo pipefail

config=${CONFIG:-/config}

# intra_op 1: one text gives an operation too little work for several threads; the cores are for several requests.
# inter_op: as many requests as there are cores.
exec tensorflow_model_server \
  --port=8500 \
  --rest_api_port=8501 \
  --model_config_file="$config/models.config" \
  --model_config_file_poll_wait_seconds=60 \
  --enable_batching \
  --batching_parameters_file="$config/batching.config" \
  --monitoring_config_file="$config/monitoring.config" \
  --enable_model_warmup \
  --tensorflow_intra_op_parallelism=1 \
  --tensorflow_inter_op_parallelism="$(nproc)" \
  "$@"
