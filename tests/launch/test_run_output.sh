#!/bin/sh
# What of the ranks' output is shown and kept.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

run 0 --nproc-per-node 4 --name folded sh -c 'echo "the same" >&2; echo "the same" >&2; echo "rank $RANK" >&2'
[ "$(grep -c 'the same' err)" -eq 4 ] || fail "equal lines were not folded"
[ "$(grep -c -x -F -e '[1-3] the same' err)" -eq 2 ] || fail "equal lines were not folded"
for rank in 1 2 3; do has err "[$rank] rank $rank"; done
[ "$(grep -c 'the same' runs/folded/logs/rank-2.log)" -eq 2 ] || fail "a log is not whole"
# A line without an end is ended before somebody else's begins; on standard output alone it stays as it is.
run 3 --nproc-per-node 2 sh -c 'printf begun >&2; printf whole; exit 3'
grep -q -x begun err || fail "words of others hang on a line of rank 0"
[ "$(cat out)" = whole ] && [ "$(wc -c <out)" -eq 5 ] || fail "rank 0's stdout is not what it wrote"
cat >bar.py <<'EOF'
import os, sys, time
for i in range(200):
    sys.stderr.write(f"\r{i} of 200")
    sys.stderr.flush()
    time.sleep(0.001)
sys.stderr.write("\rdone\r\nplain\r\n")
EOF
run 0 --nproc-per-node 2 --name bar bar.py
[ "$(wc -l <runs/bar/logs/rank-1.log)" -le 4 ] || fail "a progress bar fills the log: $(wc -l <runs/bar/logs/rank-1.log)"
has err "[1] done"
grep -q -x done runs/bar/logs/rank-1.log && grep -q -x plain runs/bar/logs/rank-1.log || fail "the end of a progress bar is lost"
# Rank 0's stdout is what it is, byte by byte, also a lot of it into a slow reader; nothing of anybody's log is lost.
head -c 3000000 /dev/urandom >bytes
"$lockstep" run --nproc-per-node 2 --name bytes cat bytes 2>err | { sleep 0.5; cat; } | cmp - bytes || fail "rank 0's stdout is not what it wrote"
cat >many.py <<'EOF'
import os, sys
for i in range(20000):
    sys.stdout.write(f"{os.environ['RANK']}:{i}:" + "x" * 300 + "\n")
EOF
"$lockstep" run --nproc-per-node 2 --tee 3 --name many many.py 2>err >out
for rank in 0 1; do [ "$(grep -c "^$rank:[0-9]*:x\{300\}$" runs/many/logs/rank-$rank.log)" -eq 20000 ] || fail "torn lines in the log of rank $rank"; done
[ "$(grep -c -v '^\(\[1\] 1\|0\):[0-9]*:x\{300\}$' out)" -eq "$(grep -c 'were not shown' out)" ] || fail "torn lines on stdout"
# A reader that is stuck does not stop ranks whose lines need not be whole.
mkfifo stuck
sleep 30 <stuck &
reader=$!
"$lockstep" run --nproc-per-node 2 --tee 1:1 --redirects 0:3 --name stuck many.py >stuck 2>err &
launcher=$!
for _ in $(seq 200); do
    [ "$(grep -c . runs/stuck/logs/rank-1.log 2>/dev/null)" = 20000 ] && break
    sleep 0.05
done
[ "$(grep -c . runs/stuck/logs/rank-1.log)" -eq 20000 ] || fail "a rank waited for a stuck terminal"
kill $reader
wait $launcher
# Logs are rotated.
run 0 --nproc-per-node 1 --redirects 3 --name long sh -c 'yes "$(printf %01000d 0)" | head -c 70000000'
[ -s runs/long/logs/rank-0.log.1 ] && [ "$(cat runs/long/logs/rank-0.log.1 runs/long/logs/rank-0.log | wc -c)" -eq 70000000 ] || fail "the log was not rotated: $(ls -l runs/long/logs)"
# A failed rank's last lines are told again where another's are behind them or they were not shown.
cat >fails.sh <<'END_SH'
echo "out $RANK"
if [ $RANK = $FIRST ]; then
    echo "a cause" >&2
    while [ ! -e go ]; do sleep 0.01; done
    exit 3
fi
[ -z "$NOISE" ] || until grep -q "a cause" err; do sleep 0.01; done
[ -z "$NOISE" ] || echo "$NOISE" >&2
touch go
exec sleep 60
END_SH
for first in 0 1; do
    rm -f go
    FIRST=$first NOISE='' run 3 --nproc-per-node 2 sh fails.sh
    lacks err "    a cause"
    rm -f go
    FIRST=$first NOISE=noise run 3 --nproc-per-node 2 sh fails.sh
    has err "the last lines of rank $first:"
    has err "    a cause"
    rm -f go
    FIRST=$first NOISE='' run 3 --nproc-per-node 2 --redirects 3 sh fails.sh
    has err "the last lines of rank $first:"
    has err "    out $first"
    has err "    a cause"
done
rm -f go
FIRST=1 NOISE='' run 3 --nproc-per-node 2 sh fails.sh
has err "the last lines of rank 1 that are not shown above:"
has err "    out 1"
# A log directory of one's own; none at all.
run 0 --nproc-per-node 2 --log-dir here sh -c 'echo "line $RANK"'
has here/rank-1.log "line 1"
rm -rf runs
run 0 --nproc-per-node 1 --log-dir none true
[ ! -e runs ] || fail "--log-dir none left something"
run 2 --nproc-per-node 1 --log-dir /dev/null/logs true
has err "error: --log-dir /dev/null/logs cannot be written: Not a directory"
[ ! -e runs ] || fail "a refused --log-dir left a run"
# Where nothing can be kept a program runs all the same, unless somebody asked for it.
mkdir closed
chmod 500 closed
if ! touch closed/x 2>/dev/null; then
    (cd closed && "$lockstep" run --nproc-per-node 1 true 2>../err) || fail "a read-only folder kept a program from running"
    has err "no logs and no report are kept"
fi
exit $bad
