/* One rank of a job of real processes: prog_comm_rank FD RANK SIZE ROLE. The shared file is
 * inherited. Prints the error's text, exits 0 when the role ended as it should. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/shm.h"

enum { COUNT = 300000 };

/* Everything once, on private and on shared buffers. */
static ls_status exchange(ls_comm *comm)
{
    int rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    void *memory;
    ls_status status = ls_comm_alloc(comm, COUNT * sizeof(float), &memory);
    if (status != LS_OK) return status;
    float *shared = memory, *private = malloc(COUNT * sizeof(float));
    for (int round = 0; round < 5 && status == LS_OK; round++) {
        float *data = round % 2 ? shared : private;
        for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + i % 7 + round);
        status = ls_comm_all_reduce(comm, data, data, COUNT, LS_DTYPE_F32, LS_REDUCE_SUM);
        for (int i = 0; i < COUNT && status == LS_OK; i++) {
            float want = (float)(size * (size - 1) / 2 + size * (i % 7 + round));
            if (data[i] != want) status = ls_fail(LS_ERR_INTERNAL, "wrong sum");
        }
    }
    free(private);
    ls_comm_free(comm, memory);
    return status == LS_OK ? ls_comm_barrier(comm) : status;
}

static ls_status collective_of(ls_comm *comm, int count)
{
    float x[64] = { 0 };
    return ls_comm_all_reduce(comm, x, x, count, LS_DTYPE_F32, LS_REDUCE_SUM);
}

static ls_status play(ls_comm *comm, const char *role)
{
    bool odd = ls_comm_rank(comm) == 1;
    if (strcmp(role, "exchange") == 0) return exchange(comm);
    ls_status status = ls_comm_barrier(comm);
    if (status != LS_OK) return status;
    if (strcmp(role, "die") == 0 && odd) raise(SIGKILL);
    if (strcmp(role, "stall") == 0 && odd) {
        sleep(2);
        _exit(0);
    }
    if (strcmp(role, "differ") == 0 && odd) return ls_comm_barrier(comm);
    return collective_of(comm, 33);
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    ls__comm_shm_options options = { .rank = atoi(argv[2]),
                                     .size = atoi(argv[3]),
                                     .timeout_ms = strcmp(argv[4], "stall") == 0 ? 500 : 20000,
                                     .oversubscribed = true };
    ls__shm *shm;
    ls_comm *comm = NULL;
    ls_status status = ls__shm_attach(atoi(argv[1]), options.size, &shm);
    if (status == LS_OK) status = ls__comm_shm_create(shm, &options, &comm);
    if (status == LS_OK) status = play(comm, argv[4]);
    if (status != LS_OK) printf("%s\n", ls_error_text());
    ls__comm_destroy(comm);
    ls__shm_destroy(shm);
    return (int)status;
}
