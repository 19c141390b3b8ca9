#!/bin/sh
# JAX with a process per device, on CPUs.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs jax
peer jax_distributed.py
exit $bad
