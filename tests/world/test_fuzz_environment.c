/* Mutated environments. */
#define LS_FUZZ_DRIVER
#include "world/fuzz_environment.c"
#include "base/memory.h"

int main(void)
{
    ls__place place = { .by = LS__STARTED_BY_US,
                        .rank = 1,
                        .size = 4,
                        .socket_fd = 5,
                        .memory_fd = 6,
                        .board_fd = 7,
                        .started = 12.5,
                        .plan = { .threads = 2, .text = "4 CPU devices", .hint = "1 of 8" } };
    char *join = ls__environment_for_child(&place);
    if (!join) return 1;
    const char *value = strchr(join, '=') + 1;
    fuzz_seed(value, strlen(value), 20000);
    ls__free(join);
    const char others[] = "\n1\n1\n2\nlocalhost\n29500\n";
    fuzz_seed(others, sizeof others - 1, 20000);
    const char nodes[] = "\n2\n0\n3\nhost\n29500\n1\n1\n2\nTrue\n";
    fuzz_seed(nodes, sizeof nodes - 1, 10000);
    const char mpi[] = "\n\n\n\nhost\n29500\n\n\n\n\n2\n4\n0\n2\n";
    fuzz_seed(mpi, sizeof mpi - 1, 10000);
    const char slurm[] = "\n\n\n\n\n\n\n\n\n\n\n\n\n\n2\n3\n0\n1\n4\n99\n2,1(x1)\nn[01-07,9]x,y\nsecret";
    fuzz_seed(slurm, sizeof slurm - 1, 20000);
    return 0;
}
