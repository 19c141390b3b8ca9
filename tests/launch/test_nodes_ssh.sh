#!/bin/sh
# lockstep run --hosts over a real sshd on each of two machines made of network namespaces: training has the bits of one machine,
# a failure is told once, hosts that cannot be reached or do not let us in are named. With LS_LONG=1 only; needs openssh-server.
set -u
[ -n "${LS_LONG:-}" ] || { echo "skipped: LS_LONG=1 runs it"; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
. "$here/launch.sh"
. "$here/netns.sh"
[ -x /usr/sbin/sshd ] || netns_skip "there is no sshd (openssh-server)"
trap 'netns_clean; rm -rf "$work"' EXIT
netns_make 3

# --- a daemon on each host ---
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
install -m 600 user_key.pub authorized
mkdir -p /run/sshd
for i in 1 2; do
    machine $i /usr/sbin/sshd -f /dev/null -o HostKey="$work/host_key" -o AuthorizedKeysFile="$work/authorized" -o PidFile=none \
        -o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes -E "$work/log$i" || netns_skip "sshd does not start here"
done
cat >config <<END
Host *
  IdentityFile $work/user_key
  IdentitiesOnly yes
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
  StrictHostKeyChecking accept-new
  UserKnownHostsFile $work/known
END
ssh="ssh -F $work/config"
a=$(netns_address 1) b=$(netns_address 2)
for host in $a $b; do
    for _ in $(seq 100); do on 0 $ssh "$host" true 2>err && break; sleep 0.05; done
done

# run_hosts CODE HOSTS WORDS...
run_hosts() {
    expected=$1 hosts=$2
    shift 2
    on 0 "$lockstep" run --hosts "$hosts" --agent "$ssh" "$@" >out 2>err
    got=$?
    [ $got -eq "$expected" ] || fail "--hosts $hosts $*: exit code $got (expected $expected)"
}

run_hosts 0 "$a*2,$b*2" --tee 3 sh -c 'echo "rank $RANK of $WORLD_SIZE on $(hostname)"'
has out "rank 0 of 4 on node1"
has out "rank 3 of 4 on node2"

run_hosts 9 "$a*2,$b*2" sh -c '[ $RANK = 3 ] && { sleep 0.5; exit 9; }; exec sleep 100'
has err "rank 3 (host node2"
[ "$(grep -c 'exited with code 9' err)" = 1 ] || fail "the failure is told $(grep -c 'exited with code 9' err) times"

run_hosts 69 "$a,10.77.255.9" true
has err "host 10.77.255.9: the agent"
mv authorized nobody
run_hosts 69 "$a,$b" true
has err "Permission denied"
mv nobody authorized

write_table table.csv
train="$lockstep train table --data table.csv --target y --batch-size 32 --max-steps 20 --seed 3 --json"
$train --devices cpu:4 --name one >out 2>err || fail "one machine: exit code $?"
one=$(digest out)
run_hosts 0 "$a*2,$b*2" --tee 3 $train --name two
[ -n "$one" ] && [ "$(digest out)" = "$one" ] || fail "over ssh: $(digest out), not $one"
exit $bad
