# Machines made of network namespaces on one bridge, for scripts: sourced. Needs root (or what it may do) and ip; skips the test
# with CTest's skip code where that is not so.
#   netns_make 3        node0 10.77.0.1, node1 10.77.0.2, node2 10.77.0.3 as $net-0, $net-1, ...; gone when the shell ends
#   on 1 command...     runs it on node 1 (machine 1 command...: under a host name of its own)
#   netns_cut 1         nothing comes or goes any more (netns_join 1: it does again)
#   netns_slow "delay 20ms loss 2%"    false where the kernel has no netem
#   netns_links         slow links by netem, else by a switch of our own (tests/launch/prog_link_emulator.c); then, for one machine or all:
#   netns_link 1 200 1  what goes to node 1 takes 200 ms, and 1 % of the frames is lost; netns_frames: how many went and were lost
#   netns_lose 1        kills every process there: a machine that loses its power, with its link
net=ls$$
bridge=lsbr$$

netns_skip() {
    echo "skipped: $*"
    exit 77
}

netns_address() { echo "10.77.$(($$ % 250)).$(($1 + 1))"; }

netns_clean() {
    [ -z "${emulator:-}" ] || netns_frames >/dev/null
    for i in $(seq 0 "$((nets - 1))"); do
        ip netns pids "$net-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
        ip netns del "$net-$i" 2>/dev/null
    done
    ip link del "$bridge" 2>/dev/null
}

netns_make() {
    nets=$1
    command -v ip >/dev/null || netns_skip "there is no ip command (iproute2)"
    ip netns add "$net-0" 2>/dev/null || netns_skip "network namespaces cannot be made here (root is needed)"
    ip link add "$bridge" type bridge 2>/dev/null || { ip netns del "$net-0"; netns_skip "bridges cannot be made here"; }
    ip link set "$bridge" up
    for i in $(seq 0 "$((nets - 1))"); do
        [ "$i" = 0 ] || ip netns add "$net-$i"
        ip link add "v$$-$i" type veth peer name eth0 netns "$net-$i"
        ip link set "v$$-$i" master "$bridge" up
        ip -n "$net-$i" addr add "$(netns_address "$i")/24" dev eth0
        ip -n "$net-$i" link set lo up
        ip -n "$net-$i" link set eth0 up
    done
}

on() {
    node=$1
    shift
    ip netns exec "$net-$node" "$@"
}
# machine 1 command...: the same with a host name of its own, node1.
machine() {
    node=$1
    shift
    ip netns exec "$net-$node" unshare --uts sh -c "hostname node$node; exec \"\$@\"" sh "$@"
}
# netns_agent FILE: a program that is called like ssh, ADDRESS COMMAND..., for launchers with agents.
netns_agent() {
    {
        echo '#!/bin/sh'
        echo 'while :; do case $1 in -*) shift ;; *) break ;; esac; done'
        echo 'host=$1; shift'
        echo 'case $host in'
        for i in $(seq 0 "$((nets - 1))"); do echo "$(netns_address "$i")) n=$i ;;"; done
        echo '*) echo "no host $host" >&2; exit 255 ;; esac'
        echo "exec ip netns exec $net-\$n unshare --uts sh -c \"hostname node\$n; \$*\""
    } >"$1"
    chmod +x "$1"
}
netns_cut() { ip link set "v$$-$1" down; }
netns_join() { ip link set "v$$-$1" up; }
netns_slow() { for i in $(seq 0 "$((nets - 1))"); do tc qdisc replace dev "v$$-$i" root netem $1 2>/dev/null || return 1; done; }
netns_links() {
    emulator=
    tc qdisc replace dev "v$$-0" root netem delay 0ms 2>/dev/null && return
    emulator=$LS_BINARY_DIR/tests/prog_link_emulator
    [ -x "$emulator" ] || netns_skip "neither netem nor tests/prog_link_emulator is here"
    interfaces=
    for i in $(seq 0 "$((nets - 1))"); do
        ip link set "v$$-$i" nomaster
        on "$i" "$emulator" --plain eth0 || netns_skip "interfaces cannot be made plain here"
        interfaces="$interfaces v$$-$i"
    done
    mkfifo "orders$$"
    "$emulator" $interfaces <"orders$$" >"frames$$" 2>&1 &
    emulator=$!
    exec 9>"orders$$"
}
netns_link() {
    if [ -n "$emulator" ]; then
        echo "link $1 $2 $3 0" >&9
    else
        tc qdisc replace dev "v$$-$1" root netem delay "$2ms" loss "$3%"
    fi
}
netns_frames() {
    [ -n "$emulator" ] || { tc -s qdisc show | sed -n 's/^ Sent .* pkt (dropped \([0-9]*\),.*/\1 were lost/p'; return; }
    exec 9>&-
    wait "$emulator"
    emulator=
    cat "frames$$"
}
netns_lose() {
    netns_cut "$1"
    ip netns pids "$net-$1" | xargs -r kill -9
}
