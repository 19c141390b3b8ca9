#!/usr/bin/env python3
"""How fast launchers of many machines meet, and how fast a rank's crash is noticed on all of them.

Meeting: 1,000 launchers of 10 ranks in one process and the first one in another, over loopback, each with its own connection and
proof of the secret; until every one has its place. Goals: 2 s and 200 MB.
Crash: launchers of two ranks each, on this machine; from the SIGKILL of one rank to SIGTERM at the ranks of every other launcher
(of this, 50 ms are the moment in which an earlier cause may show itself). Goal: 100 ms.
The numbers mean something only on a machine that does nothing else; the load is printed with them.
Usage: bench_rendezvous.py [--nodes 1000] [--ranks 10] [--rounds 5] [--launchers 4] [--build build/release]
"""
import argparse, glob, json, os, signal, statistics, subprocess, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = """import os, signal, time
def told(*_):
    open("told-" + os.environ["RANK"], "w").write(repr(time.time()))
    os._exit(0)
signal.signal(signal.SIGTERM, told)
open("pid-" + os.environ["RANK"], "w").write(str(os.getpid()))
while True: signal.pause()
"""


def crash(lockstep, launchers, port):
    with tempfile.TemporaryDirectory() as work:
        open(work + "/rank.py", "w").write(RANK)
        environment = dict(os.environ, LOCKSTEP_SECRET="measured")
        running = [subprocess.Popen([lockstep, "run", "--nnodes", str(launchers), "--node-rank", str(i), "--master-addr", "127.0.0.1",
                                     "--master-port", str(port), "--nproc-per-node", "2", "--log-dir", "none", "rank.py"],
                                    cwd=work, env=environment, stderr=subprocess.DEVNULL) for i in range(launchers)]
        last = 2 * launchers - 1
        while len(glob.glob(work + "/pid-*")) < last + 1 or not open(f"{work}/pid-{last}").read():
            time.sleep(0.01)
        time.sleep(0.3)
        at = time.time()
        os.kill(int(open(f"{work}/pid-{last}").read()), signal.SIGKILL)
        codes = {p.wait() for p in running}
        if codes != {137}:
            raise SystemExit(f"exit codes {codes}, not 137 everywhere")
        return max(float(open(f).read()) for f in glob.glob(work + "/told-*")) - at


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, default=1000)
    p.add_argument("--ranks", type=int, default=10)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--launchers", type=int, default=4)
    p.add_argument("--build", default=os.path.join(HERE, "../build/release"))
    o = p.parse_args()
    build = os.path.abspath(o.build)
    rounds = []
    for _ in range(o.rounds):
        out = subprocess.run([build + "/tests/prog_rendezvous", str(o.nodes), str(o.ranks)], check=True, capture_output=True, text=True).stdout
        rounds.append(json.loads(out))
    middle = lambda key: statistics.median(r[key] for r in rounds)
    print(f"load {os.getloadavg()[0]:.1f}, medians of {o.rounds} rounds")
    print(f"{o.nodes} nodes, {o.nodes * o.ranks} ranks meet in {middle('rendezvous_seconds'):.3f} s; "
          f"memory {middle('first_peak_mib') + middle('others_peak_mib'):.0f} MiB; "
          f"a failure told to all in {1e3 * middle('failure_to_all_seconds'):.0f} ms")
    noticed = [crash(build + "/bin/lockstep", o.launchers, 24000 + os.getpid() % 4000 + i) for i in range(o.rounds)]
    print(f"crash of a rank noticed on {o.launchers} launchers after {1e3 * statistics.median(noticed):.0f} ms, at most {1e3 * max(noticed):.0f} ms")


if __name__ == "__main__":
    main()
