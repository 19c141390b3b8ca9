/* Ranks as threads of the test's process, over one shared file. cmocka's asserts may not be used in
 * other threads, so a rank checks with RANK_OK and RANK_CHECK, which end it; the test fails after
 * all have ended. */
#ifndef LS_TESTS_HELPER_RANKS_H
#define LS_TESTS_HELPER_RANKS_H

#include <lockstep/comm.h>

#include "comm/link.h"
#include "comm/shm.h"

typedef struct ranks ranks;
typedef struct test_rank {
    int rank, size;
    ls_comm *comm;
    ls__shm *shm;   /* of its machine; NULL for size 1 */
    ls__link *link; /* NULL: one machine */
    void *user;
    ranks *all;
} test_rank;

typedef struct ranks_options {
    int timeout_ms; /* 0 = 60000 */
    size_t arena;
    const int *nodes; /* ranks of each of several machines, ended by 0; NULL = one */
    bool alternating; /* ranks go round the machines (then all have as many) */
} ranks_options;

/* Runs body on each rank and fails the test with the first failure of any. */
void run_ranks(int size, const ranks_options *options, void (*body)(test_rank *t), void *user);

/* Notes the failure and ends every wait of the others. */
void rank_failed(test_rank *t, const char *file, int line, const char *format, ...) LS_PRINTF(4, 5);

#define RANK_CHECK(t, condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            rank_failed(t, __FILE__, __LINE__, "%s is false", #condition);                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define RANK_OK(t, expr)                                                                           \
    do {                                                                                           \
        ls_status rank_status = (expr);                                                            \
        if (rank_status != LS_OK) {                                                                \
            rank_failed(t, __FILE__, __LINE__, "%s: status %d: %s", #expr, rank_status,            \
                        ls_error_text());                                                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* expr fails with this status and a text that has part. */
#define RANK_FAILS(t, expr, expected, part)                                                        \
    do {                                                                                           \
        ls_status rank_status = (expr);                                                            \
        if (rank_status != (expected) || !strstr(ls_error_text(), part)) {                         \
            rank_failed(t, __FILE__, __LINE__, "%s: status %d: %s: not \"%s\"", #expr,             \
                        rank_status, ls_error_text(), part);                                       \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* The same on several machines of different sizes, with ranks counted in different ways. */
void run_ranks_on_nodes(const ranks_options *options, void (*body)(test_rank *t), void *user);

#endif
