#!/bin/bash
# Exit with 0 if the server has an available version. Uses bash only, because the image has no curl.
set -euo pipefail

exec 3<>"/dev/tcp/127.0.0.1/${PORT:-8501}"
printf 'GET /v1/models/%s HTTP/1.0\r\n\r\n' "${MODEL:-xmc}" >&3
grep -q '"state": "AVAILABLE"' <&3
