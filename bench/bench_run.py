#!/usr/bin/env python3
"""From exec of a launcher to its end for two processes of /bin/true and of a Python script that does nothing, interleaved.

What a launcher costs is its median less that of the program started twice by hand; on a busy machine the minima say more. torchrun, mpirun and
MPICH's mpiexec.hydra are measured where they are. The numbers mean something only on a machine that does nothing else; the load is printed with them.
Usage: bench_run.py [--rounds 10] [--build build/release]
"""
import argparse, os, shutil, statistics, subprocess, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))


def seconds(commands):
    begin = time.perf_counter()
    running = [subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for c in commands]
    for process in running:
        if process.wait() != 0:
            raise SystemExit(f"{process.args} failed")
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--build", default=os.path.join(HERE, "../build/release"))
    o = p.parse_args()
    lockstep = os.path.abspath(o.build) + "/bin/lockstep"
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        script = work + "/nothing.py"
        open(script, "w").close()
        os.environ["PYTHON_EXEC"] = python = "/usr/bin/python3"
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
        for name, program in (("/bin/true", ["/bin/true"]), ("a Python script", [python, "-u", script])):
            commands = {"twice by hand": [program, program], "lockstep run": [[lockstep, "run", "--nproc-per-node", "2", *program]]}
            if shutil.which("mpirun"):
                commands["mpirun"] = [[*mpirun, *program]]
            if shutil.which("mpiexec.hydra"):
                commands["mpiexec.hydra"] = [["mpiexec.hydra", "-n", "2", *program]]
            if shutil.which("torchrun"):
                # -r and -t: without them PyTorch 1.13 fails on Python 3.11.
                commands["torchrun"] = [["torchrun", "--nproc_per_node", "2", "--monitor_interval", "0.1", "-r", "1", "-t", "1", "--no_python",
                                         *program]]
            times = {launcher: [] for launcher in commands}
            for i in range(o.rounds):
                for launcher, command in commands.items():
                    if launcher == "torchrun" and i >= 2:
                        continue  # seconds each
                    times[launcher].append(seconds(command) * 1e3)
            print(f"{name}, 2 processes (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs)")
            base, least = statistics.median(times["twice by hand"]), min(times["twice by hand"])
            for launcher, values in times.items():
                median = statistics.median(values)
                print(f"  {launcher:14} median {median:8.1f} ms  over by hand {median - base:8.1f}  min {min(values):8.1f}"
                      f"  over by hand {min(values) - least:8.1f}  n={len(values)}")


main()
