#!/bin/sh
# Hugging Face's Accelerate.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs accelerate
peer accelerate_loop.py
exit $bad
