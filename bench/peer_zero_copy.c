/* The bare form of an exchange in shared memory, as a limit: two pinned processes, no futex, no
 * third rank, no error, no check of who calls what. Each sums its half and writes it to both. For
 * each size given prints the bytes and the median in microseconds.
 *     gcc -O3 -march=native peer_zero_copy.c -o zero_copy && ./zero_copy 8 65536 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARMUP = 3, ROUNDS_MAX = 400 };

typedef struct {
    _Alignas(64) atomic_uint arrived;
} flag;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *shared(size_t nbytes)
{
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    memset(p, 0, nbytes);
    return p;
}

static void barrier(flag *flags, int rank, unsigned *generation)
{
    atomic_store_explicit(&flags[rank].arrived, ++*generation, memory_order_release);
    while (atomic_load_explicit(&flags[1 - rank].arrived, memory_order_acquire) < *generation)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        continue;
#endif
}

/* The nth CPU of those this process may use. */
static void pin(int n)
{
    cpu_set_t usable, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof usable, &usable);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &usable) && n-- == 0) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    size_t most = 0;
    for (int a = 1; a < argc; a++)
        if (strtoull(argv[a], NULL, 10) > most) most = strtoull(argv[a], NULL, 10);
    flag *flags = shared(4096);
    float *x[2] = { shared(most + 4096), shared(most + 4096) };
    int rank = fork() ? 0 : 1;
    pin(rank);
    unsigned generation = 0;
    static double seconds[ROUNDS_MAX];
    for (int a = 1; a < argc; a++) {
        size_t nbytes = strtoull(argv[a], NULL, 10), count = nbytes / 4;
        size_t low = (size_t)rank * (count / 2), high = rank ? count : count / 2;
        int rounds = nbytes > 4u << 20 ? 15 : nbytes > 256u << 10 ? 100 : ROUNDS_MAX;
        for (int i = -WARMUP; i < rounds; i++) {
            for (size_t j = 0; j < count; j++) x[rank][j] = (float)i;
            barrier(flags, rank, &generation);
            double begin = now();
            barrier(flags, rank, &generation);
            for (size_t j = low; j < high; j++) x[0][j] = x[1][j] = x[0][j] + x[1][j];
            barrier(flags, rank, &generation);
            if (i >= 0) seconds[i] = now() - begin;
        }
        qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
        if (rank == 0) printf("%zu %.3f\n", nbytes, 1e6 * seconds[rounds / 2]);
    }
    if (rank == 1) _exit(0);
    fflush(stdout);
    wait(NULL);
}
