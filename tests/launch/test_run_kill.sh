#!/bin/sh
# Whatever is killed, no process of the job is left, also none in a session of its own, and no file.
set -u
lockstep=$LS_BINARY_DIR/bin/lockstep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export TMPDIR=$work/tmp
mkdir tmp
mark=run-kill-$$
bad=0

# A rank with a child in a session of its own that ignores what can be ignored.
cat >rank.sh <<'EOF'
setsid sh -c 'trap "" TERM INT HUP QUIT; echo $$ >hidden-$RANK; while :; do sleep 0.2; done' &
while [ ! -s hidden-$RANK ]; do sleep 0.02; done
echo $PPID >launcher
eval "${ACT:-:}"
[ "$RANK" = 1 ] && echo $$ >rank-1 || : >rank-0
while :; do sleep 0.1; done
EOF

survivors() { grep -l -a -z -x "RUN_KILL_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | wc -l; }

# case NAME EXPECTED ACTION: starts the job, waits until all is there, runs ACTION, compares the code.
case_of() {
    name=$1 expected=$2 action=$3
    rm -f hidden-* launcher rank-0 rank-1
    RUN_KILL_MARK=$mark "$lockstep" run --nproc-per-node 2 --log-dir none --grace-period 1 sh rank.sh >out 2>err &
    pid=$!
    for _ in $(seq 500); do
        [ -s launcher ] && [ -e rank-0 ] && [ -s rank-1 ] && break
        [ -d /proc/$pid ] || break
        sleep 0.02
    done
    eval "$action"
    wait $pid
    code=$?
    for _ in $(seq 100); do
        [ "$(survivors)" -eq 0 ] && break
        sleep 0.02
    done
    left=$(survivors)
    if [ $code -ne "$expected" ] || [ "$left" -ne 0 ] || [ -n "$(ls tmp)" ]; then
        echo "$name: exit code $code (expected $expected), $left processes left, files: $(ls tmp)"
        sed 's/^/  err: /' err
        bad=1
    fi
}

case_of "a rank is killed" 137 'kill -KILL $(cat rank-1)'
grep -q "rank 1 .* was killed by SIGKILL" err || { echo "the rank is not named"; bad=1; }
case_of "the launcher is killed" 137 'kill -KILL $(cat launcher)'
grep -q "the launcher .* was killed by SIGKILL" err || { echo "the launcher's end is not told"; bad=1; }
case_of "the guardian is killed" 137 'kill -KILL $pid'
case_of "SIGTERM to the whole" 143 'kill -TERM $pid'
case_of "SIGINT to the whole" 130 'kill -INT $pid'
grep -q "once more, a second later, to end them now" err || { echo "when a second SIGINT counts is not told"; bad=1; }
case_of "SIGHUP to the whole" 129 'kill -HUP $pid'
case_of "SIGQUIT to the whole" 131 'kill -QUIT $pid'
case_of "SIGTERM to the launcher alone" 143 'kill -TERM $(cat launcher)'
case_of "SIGTERM while the launcher is stopped" 143 'kill -STOP $(cat launcher); sleep 0.1; kill -TERM $pid'
case_of "SIGTERM to a stopped rank" 137 'kill -STOP $(cat rank-1); sleep 0.1; kill -KILL $(cat rank-1)'
ACT='trap "" TERM' export ACT
case_of "ranks ignore SIGTERM" 143 'kill -TERM $pid'
grep -q "had not stopped 1 s later and was killed" err || { echo "the end of the grace period is not told"; bad=1; }
case_of "two requests" 143 'kill -TERM $pid; sleep 1.2; kill -TERM $pid'
ACT='trap "exit 9" TERM'
case_of "ranks choose their code" 9 'kill -TERM $pid'
ACT='trap "exit 0" TERM'
case_of "ranks end well" 0 'kill -TERM $pid'
ACT='trap "echo usr1 >&2" USR1'
case_of "SIGUSR1 is passed on" 143 'kill -USR1 $pid; sleep 0.4; kill -TERM $pid'
[ "$(grep -c usr1 err)" -eq 2 ] || { echo "SIGUSR1 did not reach both ranks"; cat err; bad=1; }
ACT='[ $RANK = 1 ] || exit 6'
case_of "a rank fails" 6 :

# A job that ends well leaves nothing either.
RUN_KILL_MARK=$mark "$lockstep" run --nproc-per-node 2 --log-dir none sh -c 'setsid sleep 60 & sleep 0.1' >out 2>err || bad=1
[ "$(survivors)" -eq 0 ] && [ -z "$(ls tmp)" ] || { echo "something is left of a job that ended well"; bad=1; }
exit $bad
