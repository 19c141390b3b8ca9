#!/bin/sh
# Lightning's Trainer and Fabric, unchanged.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs lightning
peer lightning_trainer.py
peer lightning_trainer.py auto gpus
peer lightning_fabric.py

# What the variables for ranks that see one GPU each (--isolate-devices) do, without GPUs.
export LT_DEVICES=1 PL_TRAINER_DEVICES=1 LT_NUM_NODES=2 PL_TRAINER_NUM_NODES=2
for program in lightning_trainer.py lightning_fabric.py; do
    run 0 --nproc-per-node 2 env LOCAL_RANK=0 "$python" "$peers/$program"
    has out "peer: trained on 2"
done
unset LT_DEVICES PL_TRAINER_DEVICES LT_NUM_NODES PL_TRAINER_NUM_NODES

# devices="auto" written out means one CPU to the Trainer, whoever starts it: then each rank trains alone, here as under torchrun.
PYTHON_EXEC=$python run 0 --nproc-per-node 2 --tee 1 "$peers/lightning_trainer.py" auto
[ "$(grep -c "peer: trained on 1" out)" -eq 2 ] || fail "devices=auto on CPUs under lockstep run is not what docs/launching.md says"
"$venv/bin/torchrun" --standalone --nproc-per-node 2 "$peers/lightning_trainer.py" auto >out 2>err || fail "torchrun: exit code $?"
[ "$(grep -c "peer: trained on 1" out)" -eq 2 ] || fail "devices=auto on CPUs under torchrun is not what docs/launching.md says"
exit $bad
