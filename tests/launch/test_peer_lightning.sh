#!/bin/sh
# Lightning's Trainer and Fabric, unchanged.
set -u
. "$LS_SOURCE_DIR/tests/launch/peer.sh"
needs lightning
peer lightning_trainer.py
peer lightning_trainer.py auto
peer lightning_fabric.py

# What the variables for ranks that see one GPU each (--isolate-devices) do, without GPUs.
export LT_DEVICES=1 PL_TRAINER_DEVICES=1 LT_NUM_NODES=2 PL_TRAINER_NUM_NODES=2
for program in lightning_trainer.py lightning_fabric.py; do
    job --nproc-per-node 2 env LOCAL_RANK=0 "$python" "$peers/$program"
    has out "peer: trained on 2"
done
unset LT_DEVICES PL_TRAINER_DEVICES LT_NUM_NODES PL_TRAINER_NUM_NODES

# Two machines of two ranks.
export LOCKSTEP_SECRET=00112233445566778899aabbccddeeff PYTHON_EXEC="$python"
line="--nnodes 2 --master-addr 127.0.0.1 --master-port $((10000 + $$ % 10000)) --nproc-per-node 2"
for program in lightning_trainer.py "lightning_trainer.py auto" lightning_fabric.py; do
    for _ in 1 2 3 4 5; do
        # shellcheck disable=SC2086
        "$lockstep" run $line --node-rank 1 "$peers"/$program >out1 2>err1 &
        # shellcheck disable=SC2086
        "$lockstep" run $line --node-rank 0 "$peers"/$program >out 2>err
        code=$?
        wait $!
        second=$?
        aborted || break
    done
    [ "$code $second" = "0 0" ] || fail "$program on two machines: exit codes $code and $second"
    has out "peer: trained on 4"
done
unset LOCKSTEP_SECRET PYTHON_EXEC

exit $bad
