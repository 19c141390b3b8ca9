/* Long collectives over several machines, in chunks. */
#ifndef LS_COMM_NET_PIPELINE_H
#define LS_COMM_NET_PIPELINE_H

#include "comm/collective.h"
#include "comm/net_internal.h"

typedef struct ls__net_pipeline {
    ls__net *net;
    const ls__call *call;
    const struct ls__cut *cut;
    size_t element;
    int64_t chunk, nchunks; /* elements of `count` in a chunk */
    bool alone;             /* this node's only rank */
    bool early;             /* results may come before all contributions are gone */
    int64_t sent;           /* chunks that were sent before the meeting */
    int64_t expected;       /* chunks whose receives are begun */
} ls__net_pipeline;

/* Before the call's meeting; a failure breaks the communicator as every later one. */
ls_status ls__net_pipeline_begin(ls__net *net, const ls__call *call, ls__net_pipeline *out);
/* [all] After it. */
ls_status ls__net_pipeline_run(ls__net_pipeline *p);
/* Bytes for partial sums of one chunk: of this node for others, of others for this rank. */
void ls__net_pipeline_rooms(ls__net *net, size_t *sums, size_t *partials);

#endif
