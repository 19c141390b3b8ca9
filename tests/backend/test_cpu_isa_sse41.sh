#!/bin/sh
# The models with SSE4.1, the least that oneDNN compiles for.
set -eu
ONEDNN_MAX_CPU_ISA=SSE41 "$LS_BINARY_DIR/tests/test_models"
ONEDNN_MAX_CPU_ISA=SSE41 exec "$LS_BINARY_DIR/tests/test_half"
