/* Peer: f32 sum all-reduce over MPI. For each size given on the command line prints the bytes and
 * rank 0's median in microseconds. Every round each rank first writes its own buffer, as in the
 * other programs here, so that the data has to cross between cores.
 *     mpicc -O3 peer_mpi_all_reduce.c -o mpi && mpirun -np 2 ./mpi 8 65536 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARMUP = 3, ROUNDS_MAX = 400 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int rounds_for(size_t nbytes)
{
    return nbytes > 4u << 20 ? 15 : nbytes > 256u << 10 ? 100 : ROUNDS_MAX;
}

static double measure(float *in, float *out, int count, int rounds)
{
    double seconds[ROUNDS_MAX];
    for (int i = -WARMUP; i < rounds; i++) {
        for (int j = 0; j < count; j++) in[j] = (float)i;
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) seconds[i] = MPI_Wtime() - begin;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
    return seconds[rounds / 2];
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int a = 1; a < argc; a++) {
        size_t nbytes = strtoull(argv[a], NULL, 10), count = nbytes / sizeof(float);
        float *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
        if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 1);
        double median = measure(in, out, (int)count, rounds_for(nbytes));
        if (rank == 0) printf("%zu %.3f\n", nbytes, 1e6 * median);
        free(in);
        free(out);
    }
    MPI_Finalize();
}
