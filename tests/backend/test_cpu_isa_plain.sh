#!/bin/sh
# The models without blocked layouts, as where oneDNN has none.
set -eu
LOCKSTEP_CPU_LAYOUT=plain "$LS_BINARY_DIR/tests/test_models"
LOCKSTEP_CPU_LAYOUT=plain exec "$LS_BINARY_DIR/tests/test_half"
