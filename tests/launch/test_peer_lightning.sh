#!/bin/sh
# Lightning's Trainer and Fabric with devices="auto".
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs lightning
peer lightning_trainer.py
peer lightning_fabric.py
exit $bad
