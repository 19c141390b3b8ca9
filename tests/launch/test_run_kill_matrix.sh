#!/bin/sh
# Every process of a job x a signal x a moment, at random: no survivor, no held port, no file, and a code that fits. 20 cases, 200 with
# LS_LONG; LS_SEED repeats a series.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"
cases=20
[ -n "${LS_LONG:-}" ] && cases=200
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

# one VICTIM SIGNAL MOMENT
one() {
    victim=$1 signal=$2 moment=$3
    hang=60s # only a stopped rank is a hang: on a busy machine the rest may say nothing for a second
    case $victim-$signal in rank?-STOP) hang=1s ;; esac
    rm -f pid-* before-* running-* saving-* exiting-* checkpoint-* port
    RUN_MATRIX_MARK=$mark "$lockstep" run --nproc-per-node 2 --log-dir none --grace-period 500ms --hang-timeout $hang python3 -S -u program.py >out 2>err &
    guardian=$!
    for _ in $(seq 3000); do # ranks that are bound to a busy CPU are slow
        [ -e "$moment-0" ] && [ -e "$moment-1" ] && break
        [ -d /proc/$guardian ] || break
        sleep 0.01
    done
    case $victim in
    guardian) pid=$guardian ;;
    launcher) pid=$(cut -d' ' -f2 pid-0) ;;
    *) pid=$(cut -d' ' -f1 "pid-${victim#rank}") ;;
    esac
    kill -s "$signal" "$pid" 2>/dev/null
    # What is stopped and keeps the whole from ending goes on a while later, as an operator would have it.
    if [ "$signal" = STOP ]; then
        sleep 0.4
        case $victim in guardian | launcher) kill -s CONT "$pid" 2>/dev/null ;; esac
    fi
    wait $guardian
    code=$?
    for _ in $(seq 200); do
        [ -z "$(survivors)" ] && break
        sleep 0.02
    done
    left=$(survivors | tr '\n' ' ')
    case $victim-$signal in
    # 0: it had ended before the signal came, or ended well all the same
    guardian-KILL | launcher-KILL) good="137 0" ;;
    rank?-KILL) good="137 0" ;;
    # before its handler, between two systems calls, after the last one: the rank's own code, or the signal
    *-TERM) good="0 3 143" ;;
    *-INT) good="0 1 130" ;;
    rank?-STOP) good="0 124" ;;
    *) good="0" ;;
    esac
    fits=0
    for g in $good; do [ "$code" = "$g" ] && fits=1; done
    held=""
    [ ! -s port ] || python3 -c 'import socket, sys; socket.socket().bind(("127.0.0.1", int(open("port").read())))' 2>bind ||
        grep -q "TIME_WAIT" bind || held=$(ss -Htlnp "sport = :$(cat port)" 2>/dev/null)
    if [ $fits = 0 ] || [ -n "$left" ] || [ -n "$held" ] || [ -n "$(ls tmp)" ] || [ "$(shared)" -gt "$shm_before" ]; then
        fail "$signal to $victim while $moment: code $code (one of: $good), left: $left, port: $held, files: $(ls tmp)"
        for p in $left; do kill -KILL "$p"; done
        rm -rf tmp/*
    fi
}

python3 - "$seed" $cases >chosen <<'END_PY'
import random, sys
r = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    print(r.choice(["guardian", "launcher", "rank0", "rank1"]), r.choice(["KILL", "STOP", "TERM", "INT"]),
          r.choice(["before", "running", "saving", "exiting"]))
END_PY
while read -r victim signal moment; do one "$victim" "$signal" "$moment"; done <chosen
exit $bad
