#!/bin/sh
# An MPI program under lockstep run is noticed: before the start by what the executable needs, later by what it has loaded.
set -u
. "$LS_SOURCE_DIR/tests/launch/launch.sh"

# No MPI is needed for it: a library of that name is enough.
mkdir mpi && printf 'int MPI_Init(void) { return 0; }\n' >mpi.c && printf 'int MPI_Init(void);\nint main(void) { return MPI_Init(); }\n' >main.c
cc -shared -fPIC -Wl,-soname,libmpi.so.40 -o mpi/libmpi.so.40 mpi.c && ln -s libmpi.so.40 mpi/libmpi.so || exit 77
cc -o program main.c -Lmpi -lmpi -Wl,-rpath,"$work/mpi" || exit 77
run 0 --nproc-per-node 2 --events events.jsonl ./program
has err "./program (libmpi.so.40): an MPI program."
has err "start it by mpirun -n 2 PROGRAM"
has events.jsonl '"event":"mpi-program"'
run 0 --nproc-per-node 1 ./program
lacks err "an MPI program"
run 0 --nproc-per-node 2 true
lacks err "an MPI program"

# What python loads: mpi4py's module is a library of this name; a libmpi that something else brings along says nothing.
mkdir -p mpi4py && cp mpi/libmpi.so.40 mpi4py/MPI.so
cat >loads.py <<'END_PY'
import ctypes, os, sys, time
ctypes.CDLL(os.path.abspath(sys.argv[1]))
time.sleep(2.6)
END_PY
run 0 --nproc-per-node 2 loads.py mpi4py/MPI.so
has err "(mpi4py): an MPI program."
run 0 --nproc-per-node 2 loads.py mpi/libmpi.so.40
lacks err "an MPI program"
exit $bad
