#!/bin/sh
# lockstep run on machines made of network namespaces: addresses of their own, a rank that dies, a machine
# that comes back, launchers started by an agent. With LS_LONG=1 also what takes a few seconds of silence to notice: a machine
# without power, the first one without, a link that is cut; and slow and lossy links.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/launch.sh"
. "$here/netns.sh"
trap 'netns_clean; rm -rf "$work"' EXIT
netns_make 3
export LOCKSTEP_SECRET=of-this-test
mark=netns-$$
first=$(netns_address 0)

cat >rank.sh <<'END'
echo "rank $RANK node $GROUP_RANK/$GROUP_WORLD_SIZE master $MASTER_ADDR restart $TORCHELASTIC_RESTART_COUNT by $GLOO_SOCKET_IFNAME"
eval "${ACT:-:}"
END

survivors() { grep -l -a -z -x "NODES_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | grep -v "/$$/" | wc -l; }
now() { date +%s%N; }

# launch NODE WORDS...: a launcher on that node, in the background; its pid in $pid, its output in outN and errN.
launch() {
    node=$1
    shift
    rm -f code$node
    { NODES_MARK=$mark on "$node" "$lockstep" run --nnodes "$nodes" --node-rank "$node" --master-addr "$first" --master-port 29500 --nproc-per-node 2 "$@" >out$node 2>err$node
      echo $? >code$node; } &
}
# ended NODE CODE: waits for its code, for at most 15 s.
ended() {
    for _ in $(seq 750); do [ -s code$1 ] && break; sleep 0.02; done
    cp out$1 out; cp err$1 err
    [ "$(cat code$1 2>/dev/null)" = "$2" ] || fail "$case: node $1 ended with $(cat code$1 2>/dev/null || echo nothing) (expected $2)"
}
# until FILE TEXT: waits for it.
until_has() {
    for _ in $(seq 750); do grep -q -F -e "$2" "$1" 2>/dev/null && return; sleep 0.02; done
    cp $1 err; cp $1 out
    fail "$case: \"$2\" does not come in $1"
}
clean() {
    for _ in $(seq 100); do [ "$(survivors)" -eq 0 ] && return; sleep 0.02; done
    fail "$case: $(survivors) processes are left"
}

case="all well"
nodes=3
ACT=: ; export ACT
for i in 2 1 0; do launch $i --tee 3 sh rank.sh; done
for i in 0 1 2; do ended $i 0; done
cp out0 out
has out0 "rank 0 node 0/3 master $first restart 0 by eth0"
has out0 "rank 5 node 2/3 master $first restart 0 by eth0"

case="a rank dies"
nodes=2
ACT='touch went$RANK; [ $RANK = 3 ] && [ "$GO" ] && { sleep 0.3; kill -SEGV $$; }; sleep 60'
GO=1; export GO
launch 0 sh rank.sh; launch 1 sh rank.sh
ended 0 139; has err0 "rank 3 (host"
ended 1 139
clean
GO=

case="a machine is rebooted and comes back"
rm -f went*
ACT='touch went$RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60'
launch 0 --max-restarts 2 --tee 3 sh rank.sh; launch 1 --max-restarts 2 sh rank.sh
for _ in $(seq 500); do [ -e went0 ] && [ -e went3 ] && break; sleep 0.02; done
begin=$(now)
netns_lose 1
netns_join 1
launch 1 --max-restarts 2 sh rank.sh
until_has out0 "restart 1"
took=$((($(now) - begin) / 1000000))
[ $took -lt 10000 ] || fail "$case: resumed after $took ms"
echo "$case: resumed after $took ms"
ended 0 0
ended 1 0
cp err0 err
has err0 "node 1 (host"
clean

case="an agent starts the others"
cat >agent.sh <<END
#!/bin/sh
# agent.sh HOST COMMAND
case "\$2" in *of-this-test*) echo "the secret is on a command line" >&2; exit 1 ;; esac
case \$1 in $first) n=0 ;; $(netns_address 1)) n=1 ;; *) echo "unknown host \$1" >&2; exit 255 ;; esac
exec ip netns exec $net-\$n sh -c "\$2"
END
chmod +x agent.sh
ACT=
NODES_MARK=$mark on 0 "$lockstep" run --hosts "$first*1,$(netns_address 1)*2" --agent ./agent.sh --tee 3 sh rank.sh >out 2>err
code=$?
[ $code -eq 0 ] || fail "$case: exit code $code"
has out "rank 0 node 0/2 master"
has out "rank 2 node 1/2 master"
NODES_MARK=$mark on 0 "$lockstep" run --hosts "$first,10.9.9.9" --agent ./agent.sh sh rank.sh >out 2>err
code=$?
[ $code -eq 69 ] || fail "$case: a host that is not there: exit code $code"
has err "host 10.9.9.9: the agent (./agent.sh) ended with code 255"
clean

if [ "${LS_LONG:-0}" = 1 ]; then
    ACT='touch went$RANK; sleep 60'
    nodes=2
    case="a machine loses its power"
    rm -f went*
    launch 0 sh rank.sh; launch 1 sh rank.sh
    for _ in $(seq 500); do [ -e went0 ] && [ -e went3 ] && break; sleep 0.02; done
    begin=$(now)
    netns_lose 1
    ended 0 69
    took=$((($(now) - begin) / 1000000))
    has err0 "node 1 (host"
    has err0 "nothing was heard of it for"
    [ $took -lt 9000 ] || fail "$case: noticed after $took ms"
    clean
    netns_join 1
    case="the first machine loses its power"
    rm -f went*
    launch 0 sh rank.sh; launch 1 sh rank.sh
    for _ in $(seq 500); do [ -e went0 ] && [ -e went3 ] && break; sleep 0.02; done
    netns_lose 0
    ended 1 69
    has err1 "the first node (host"
    clean
    netns_join 0
    case="a link is cut, and mended too late"
    rm -f went*
    ACT='touch went$RANK; sleep 60'
    launch 0 sh rank.sh; launch 1 sh rank.sh
    for _ in $(seq 500); do [ -e went0 ] && [ -e went3 ] && break; sleep 0.02; done
    netns_cut 1
    ended 0 69; ended 1 69
    has err0 "node 1 (host"
    has err1 "the first node (host"
    netns_join 1
    clean
    case="slow and lossy links"
    if netns_slow "delay 60ms 20ms loss 3%"; then
        nodes=3
        ACT='i=0; while [ $i -lt 2000 ]; do echo "line $i of $RANK" >&2; i=$((i + 1)); done; sleep 8; [ $RANK = 5 ] && exit 9; sleep 60'
        for i in 2 1 0; do launch $i sh rank.sh; done
        for i in 0 1 2; do
            for _ in $(seq 3); do [ -s code$i ] || sleep 10; done
            ended $i 9
        done
        has err0 "line 1999 of 5"
        clean
    else
        echo "skipped: $case (this kernel has no tc netem)"
    fi
fi
exit $bad
