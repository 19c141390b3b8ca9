#!/bin/sh
# Current PyTorch over gloo, started by lockstep run and started again by it.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs torch
peer ddp.py
# A rank that is killed, a second start.
job --nproc-per-node 2 --max-restarts 1 --inject kill:rank=1@500ms "$peers/ddp.py"
has err "rank 1"
has out "peer: trained on 2"
exit $bad
