#!/bin/bash
# Start tensorflow_model_server with the settings in this folder. Additional flags override them.
#
#   launch/serving/serve.sh                                        # settings from /config, as in the image
#   CONFIG=launch/serving launch/serving/serve.sh --rest_api_port=9501
set -euo pipefail

config=${CONFIG:-/config}

# The numbers of threads are repeated here: without these flags the server replaces those of session.config.
exec tensorflow_model_server \
  --port=8500 \
  --rest_api_port=8501 \
  --model_config_file="$config/models.config" \
  --model_config_file_poll_wait_seconds=60 \
  --enable_batching \
  --batching_parameters_file="$config/batching.config" \
  --monitoring_config_file="$config/monitoring.config" \
  --enable_model_warmup \
  --tensorflow_session_config_file="$config/session.config" \
  --tensorflow_intra_op_parallelism=1 \
  --tensorflow_inter_op_parallelism=-1 \
  "$@"
