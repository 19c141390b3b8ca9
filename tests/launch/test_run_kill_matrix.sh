#!/bin/sh
# Every process of a job x a signal x a moment, at random: no survivor, no held port, no file, and a code that fits. 20 cases and 3 over
# two launchers, 200 and 100 with LS_LONG; LS_SEED repeats a series.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
cases=${LS_CASES:-20} # of one launcher
pairs=${LS_PAIRS:-3}  # of two
[ -n "${LS_LONG:-}" ] && cases=200 pairs=100
seed=${LS_SEED:-$(date +%s)}
echo "LS_SEED=$seed repeats these cases"
export TMPDIR=$work/tmp
mark=matrix-$$
mkdir tmp

# A program that meets at the port, runs, saves and leaves: a file tells when each begins.
cat >program.py <<'END_PY'
import os, signal, socket, sys, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
def at(moment):
    open(f"{moment}-{rank}", "w").close()
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
open("port", "w").write(str(port))
open(f"pid-{rank}", "w").write(f"{os.getpid()} {os.getppid()}")
at("before")
time.sleep(0.1)
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(60)
    peer = server.accept()[0]
else:
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
if os.fork() == 0:  # a helper in a session of its own
    os.setsid()
    time.sleep(60)
    os._exit(0)
at("running")
for _ in range(10):
    if stopping: break
    time.sleep(0.02)
at("saving")
open(f"checkpoint-{rank}.part", "w").write("x" * 100000)
time.sleep(0.1)
os.rename(f"checkpoint-{rank}.part", f"checkpoint-{rank}")
at("exiting")
time.sleep(0.1)
os._exit(3 if stopping else 0)
END_PY

survivors() { grep -l -a -z -x "RUN_MATRIX_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/||;s|/environ||'; }
shared() { ls -A /dev/shm 2>/dev/null | grep -c lockstep; }
shm_before=$(shared)

# strike PID SIGNAL: what is stopped and keeps the whole from ending goes on a while later, as an operator would have it.
strike() {
    kill -s "$2" "$1" 2>/dev/null
    [ "$2" = STOP ] || return
    sleep 0.4
    case $victim in guardian* | launcher*) kill -s CONT "$1" 2>/dev/null ;; esac
}
# until_moment MOMENT: both ranks are there, or one of $guardians has ended.
until_moment() {
    for _ in $(seq 3000); do # ranks that are bound to a busy CPU are slow
        [ -e "$1-0" ] && [ -e "$1-1" ] && return
        for p in $guardians; do [ -d /proc/$p ] || return; done
        sleep 0.01
    done
}
# check CODE GOOD: the code is one of these, and nothing is left.
check() {
    for _ in $(seq 200); do
        [ -z "$(survivors)" ] && break
        sleep 0.02
    done
    left=$(survivors | tr '\n' ' ')
    fits=0
    for g in $2; do [ "$1" = "$g" ] && fits=1; done
    held=""
    [ ! -s port ] || python3 -c 'import socket, sys; socket.socket().bind(("127.0.0.1", int(open("port").read())))' 2>bind ||
        grep -q "TIME_WAIT" bind || held=$(ss -Htlnp "sport = :$(cat port)" 2>/dev/null)
    if [ $fits = 0 ] || [ -n "$left" ] || [ -n "$held" ] || [ -n "$(ls tmp)" ] || [ "$(shared)" -gt "$shm_before" ]; then
        fail "$signal to $victim while $moment: code $1 (one of: $2), left: $left, port: $held, files: $(ls tmp)"
        for p in $left; do kill -KILL "$p"; done
        rm -rf tmp/*
    fi
}
# launch ERR WORDS...: in the background, as $!
launch() {
    err=$1
    shift
    RUN_MATRIX_MARK=$mark "$lockstep" run "$@" --log-dir none --grace-period 500ms python3 -S -u program.py >out 2>$err &
}
begin() {
    victim=$1 signal=$2 moment=$3
    hang=60s # only a stopped rank is a hang: on a busy machine the rest may say nothing for a second
    case $victim-$signal in rank*-STOP) hang=1s ;; esac
    rm -f pid-* meeting-* before-* running-* saving-* exiting-* checkpoint-* port
}

# one VICTIM SIGNAL MOMENT
one() {
    begin "$@"
    launch err --nproc-per-node 2 --hang-timeout $hang
    guardian=$!
    guardians=$guardian
    until_moment "$moment"
    case $victim in
    guardian) pid=$guardian ;;
    launcher) pid=$(cut -d' ' -f2 pid-0) ;;
    *) pid=$(cut -d' ' -f1 "pid-${victim#rank}") ;;
    esac
    strike "$pid" "$signal"
    wait $guardian
    code=$?
    case $victim-$signal in
    # 0: it had ended before the signal came, or ended well all the same
    *-KILL) good="137 0" ;;
    # before its handler, between two systems calls, after the last one: the rank's own code, or the signal
    *-TERM) good="0 3 143" ;;
    *-INT) good="0 1 130" ;;
    rank?-STOP) good="0 124" ;;
    *) good="0" ;;
    esac
    check $code "$good"
}

# two VICTIM SIGNAL MOMENT: the same over two launchers of a rank each; victims are those of node 0 or 1. While meeting, the first
# waits for the other, which comes only where it goes on.
two() {
    begin "$@"
    meet=$((meet + 1))
    words="--nnodes 2 --master-addr 127.0.0.1 --master-port $meet --nproc-per-node 1 --hang-timeout $hang"
    export LOCKSTEP_SECRET=of-this-test
    launch err $words --node-rank 0
    first=$!
    other=
    guardians=$first
    if [ "$moment" = meeting ]; then
        victim=${victim%?}0
        for _ in $(seq 500); do [ -n "$(ss -Htln "sport = :$meet")" ] && break; sleep 0.01; done
        case $victim in guardian0) pid=$first ;; *) pid=$(pgrep -P $first) ;; esac
        strike "$pid" "$signal"
        [ "$signal" != STOP ] || launch err1 $words --node-rank 1
        [ "$signal" != STOP ] || other=$!
    else
        launch err1 $words --node-rank 1
        other=$!
        guardians="$first $other"
        until_moment "$moment"
        case $victim in
        guardian0) pid=$first ;;
        guardian1) pid=$other ;;
        launcher?) pid=$(cut -d' ' -f2 "pid-${victim#launcher}") ;;
        *) pid=$(cut -d' ' -f1 "pid-${victim#rank}") ;;
        esac
        strike "$pid" "$signal"
    fi
    wait $first
    code=$?
    [ -z "$other" ] || { wait $other; code=$code/$?; cat err1 >>err; }
    unset LOCKSTEP_SECRET
    case $moment-$victim-$signal in
    meeting-*-KILL) good=137 ;;
    meeting-*-TERM) good=143 ;;
    meeting-*-INT) good=130 ;;
    *-rank?-KILL) good="137/137 0/0" ;;
    *0-KILL) good="137/69 137/0 0/0" ;;
    *1-KILL) good="69/137 0/137 0/0" ;;
    *-TERM) good="0/0 3/3 143/143" ;;
    *-INT) good="0/0 1/1 130/130" ;;
    *-rank?-STOP) good="0/0 124/124" ;;
    *) good="0/0" ;;
    esac
    check $code "$good"
}

python3 - "$seed" $cases $pairs >chosen <<'END_PY'
import random, sys
r = random.Random(int(sys.argv[1]))
signals, moments = ["KILL", "STOP", "TERM", "INT"], ["before", "running", "saving", "exiting"]
for _ in range(int(sys.argv[2])):
    print("one", r.choice(["guardian", "launcher", "rank0", "rank1"]), r.choice(signals), r.choice(moments))
for _ in range(int(sys.argv[3])):
    moment = r.choice(["meeting"] + moments)
    whom = ["guardian", "launcher"] if moment == "meeting" else ["guardian", "launcher", "rank"]
    print("two", r.choice(whom) + r.choice("01"), r.choice(signals), moment)
END_PY
meet=$((12000 + $$ % 9000))
while read -r how victim signal moment; do $how "$victim" "$signal" "$moment"; done <chosen
exit $bad
