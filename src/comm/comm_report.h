/* What ranks are doing, as records and as text; for reports only. */
#ifndef LS_COMM_REPORT_H
#define LS_COMM_REPORT_H

#include "comm/comm_internal.h"

typedef struct ls__activity {
    uint64_t seq, what;
    bool inside;
    bool silent; /* nothing is known but that it has not made the call in question */
    char place[LS__PLACE];
} ls__activity;

/* This rank's own, with its place. */
void ls__activity_own(ls_comm *comm, ls__activity *out);
/* "rank 1 is in ...; ranks 0, 2 are in ...", seen from call `seq`; names as ls_comm's. */
void ls__activities_text(const ls__activity *each, int size, const int *names, uint64_t seq,
                         char *out, size_t nbytes);

#endif
