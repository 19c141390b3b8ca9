/* Sums that are exact over ranks: per-chunk states gathered once and merged in chunk order. */
#ifndef LS_METRIC_INTERNAL_H
#define LS_METRIC_INTERNAL_H

#include <lockstep/comm.h>
#include <lockstep/metric.h>

/* The weighted mean that ls_report and losses use: a metric like any other. Its update takes
 * values[0] and, if given, weights values[1]. */
extern const ls_metric ls__mean_metric;
typedef struct ls__mean_state {
    double sum, weight;
} ls__mean_state;

/* [all] Chunks [0, nchunks) are dealt to ranks: rank r has [nchunks*r/size, nchunks*(r+1)/size),
 * and states holds theirs one after the other, nbytes each. merged: nbytes, the states of all
 * chunks merged in chunk order, on every rank the same bits. */
ls_status ls__metric_gather(ls_comm *comm, const ls_metric *metric, int64_t nchunks,
                            const void *states, void *merged);

#endif
