/* The measurements of lockstep bench comm. */
#ifndef LS_CLI_BENCH_MEASURE_H
#define LS_CLI_BENCH_MEASURE_H

#include <lockstep/comm.h>

/* Seconds of one operation over its rounds, on rank 0. */
typedef struct ls_cli_timing {
    int rounds;
    double median, best, p95;
} ls_cli_timing;

/* All [all]. Before each round every rank writes its own input, unmeasured; then a barrier; then
 * the clock. After it the result is compared bit for bit with what it must be; the first round's
 * inputs differ in every element. LS_ERR_INTERNAL: a result was wrong. */

/* An f32 sum: from one private buffer to another, or in place in communicator memory. */
ls_status ls_cli_measure_all_reduce(ls_comm *comm, int64_t nbytes, bool shared, ls_cli_timing *out);
ls_status ls_cli_measure_barrier(ls_comm *comm, ls_cli_timing *out);
/* One step of the exchange of nbytes of f32 parameters, one leaf per rank, with AdamW in it:
 * agreement, commit, wait. */
ls_status ls_cli_measure_exchange(ls_comm *comm, int64_t nbytes, ls_cli_timing *out);
/* Its limit: the same bytes read and written once, with one addition per byte stream: every rank
 * reads its part of everybody's gradients, reads and writes its part of three arrays. */
ls_status ls_cli_measure_limit(ls_comm *comm, int64_t nbytes, ls_cli_timing *out);

#endif
