/* Failures and findings shared outside a step. A rank that fails alone would leave the others
 * waiting in the next collective until its timeout; here they all meet first, at the cost of one
 * small all-reduce, and leave with the same status and the first failing rank's words. */
#include "run/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

enum { TEXT_MAX = 1016 };

typedef struct failure {
    int64_t status;
    char text[TEXT_MAX];
} failure;

bool ls__comm_lost(ls_status status)
{
    return status == LS_ERR_TIMEOUT || status == LS_ERR_PEER || status == LS_ERR_MISMATCH;
}

static ls_status first_failure(ls_comm *comm, ls_status own)
{
    int size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    failure *all = ls__alloc((size_t)size, sizeof *all);
    /* Without memory the collective still needs a buffer: one's own slot is all that can be had. */
    if (!all) return own != LS_OK ? own : LS_ERR_MEMORY;
    all[rank].status = own;
    if (own != LS_OK) snprintf(all[rank].text, TEXT_MAX, "%s", ls_error_text());
    ls_status status = ls_comm_all_gather(comm, &all[rank], all, (int64_t)sizeof *all, LS_DTYPE_U8);
    int failed = 0;
    while (status == LS_OK && failed < size && all[failed].status == LS_OK) failed++;
    if (status == LS_OK && failed < size && failed != rank)
        status = ls_fail((ls_status)all[failed].status, "rank %d: %s", failed, all[failed].text);
    else if (status == LS_OK)
        status = own;
    ls__free(all);
    return status;
}

ls_status ls__share_failure(ls_comm *comm, ls_status status, uint64_t *word, uint64_t *word_max)
{
    if (ls_comm_size(comm) == 1 || ls__comm_lost(status)) return status;
    /* An OR by MAX: one element per bit that may be set. */
    uint64_t all[66] = { status != LS_OK, word_max ? *word_max : 0 };
    for (int bit = 0; word && bit < 64; bit++) all[2 + bit] = *word >> bit & 1;
    ls_status sent = ls_comm_all_reduce(comm, all, all, 66, LS_DTYPE_U64, LS_REDUCE_MAX);
    if (sent != LS_OK) return status != LS_OK ? status : sent;
    if (word_max) *word_max = all[1];
    for (int bit = 0; word && bit < 64; bit++) *word |= all[2 + bit] << bit;
    return all[0] ? first_failure(comm, status) : LS_OK;
}

ls_status ls__share_json(ls_comm *comm, json_t **document)
{
    if (ls_comm_size(comm) == 1) return LS_OK;
    bool root = ls_comm_rank(comm) == 0;
    char *text = root && *document ? json_dumps(*document, JSON_COMPACT) : NULL;
    int64_t nbytes = text ? (int64_t)strlen(text) : 0;
    ls_status status = ls_comm_broadcast(comm, &nbytes, 1, LS_DTYPE_I64, 0);
    if (status != LS_OK || nbytes == 0) goto done;
    if (!root && !(text = ls__alloc((size_t)nbytes, 1))) {
        status = LS_ERR_MEMORY;
        goto done;
    }
    LS_TRY_GOTO(ls_comm_broadcast(comm, text, nbytes, LS_DTYPE_U8, 0), status, done);
    if (root) goto done;
    json_error_t error;
    *document = json_loadb(text, (size_t)nbytes, 0, &error);
    if (!*document) status = ls_fail(LS_ERR_INTERNAL, "rank 0's document: %s", error.text);
done:
    free(text);
    return status;
}
