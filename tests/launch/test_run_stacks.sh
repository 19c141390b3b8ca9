#!/bin/sh
# Where the ranks were is told: in the report and the events of a failure, and on standard error when nothing happens.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

cat >waits.c <<'END_C'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void waits_for_nothing(void) { for (;;) pause(); }
__attribute__((noinline)) void trains(void) { waits_for_nothing(); __asm__ volatile(""); }
static void *helps(void *p) { waits_for_nothing(); return p; }
int main(void)
{
    pthread_t thread;
    if (strcmp(getenv("RANK"), "1") == 0) { usleep(300000); return 7; }
    pthread_create(&thread, NULL, helps, NULL);
    trains();
    return 0;
}
END_C
cc -O1 -fno-optimize-sibling-calls -rdynamic -pthread -o waits waits.c || exit 77
run 7 --nproc-per-node 2 --report report.json --events events.jsonl ./waits
python3 - <<'END_PY' || fail "stacks of the report: $(cat report.json)"
import json
stacks = json.load(open("report.json"))["stacks"]
assert len(stacks) == 2 and all(s.startswith("rank 0 thread ") for s in stacks), stacks
event = [json.loads(line) for line in open("events.jsonl")]
event = [e for e in event if e["event"] == "stacks"]
assert len(event) == 1 and event[0]["threads"] == stacks, event
END_PY
if "$LS_BINARY_DIR/bin/lockstep" --version >/dev/null && grep -q -a dwfl_getthread_frames "$LS_BINARY_DIR/bin/lockstep" &&
    ls /usr/lib/*/libdw.so.1 >/dev/null 2>&1; then
    has report.json "waits_for_nothing < trains < main <"
    grep -q 'waits_for_nothing < .*\(start_thread\|clone\)' report.json || has report.json "waits_for_nothing < "
fi
run 124 --nproc-per-node 1 --hang-timeout 500ms ./waits
has err "    rank 0 thread"
# A rank that is stopped stays so, and the job ends as it would have.
run 7 --nproc-per-node 2 --inject stop:rank=0@100ms --report report.json ./waits
has report.json "state T"
exit $bad
