#!/bin/sh
# The models with AVX2: blocks of 8 channels.
set -eu
ONEDNN_MAX_CPU_ISA=AVX2 "$LS_BINARY_DIR/tests/test_models"
ONEDNN_MAX_CPU_ISA=AVX2 exec "$LS_BINARY_DIR/tests/test_half"
