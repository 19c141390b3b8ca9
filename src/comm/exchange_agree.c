/* The agreement at the end of backward: one meeting, then every rank reads every board and computes
 * the same from them, in leaf order, so that no sum depends on who computed what. */
#include "comm/exchange_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "comm/work.h"

/* Joins a note into the agreement. False: more names than it holds. */
static bool join(ls__agreement *out, const ls__note *note)
{
    out->weight += note->weight;
    for (int i = 0; i < note->nrecords; i++) {
        const ls__record *record = &note->records[i];
        int at = 0;
        while (at < out->nrecords && strcmp(out->records[at].name, record->name) != 0) at++;
        if (at == LS__RECORDS_MAX) return false;
        if (at == out->nrecords) {
            memcpy(out->records[at].name, record->name, LS__RECORD_NAME_MAX);
            out->records[at].sum = out->records[at].weight = 0;
            out->nrecords++;
        }
        out->records[at].sum += record->sum;
        out->records[at].weight += record->weight;
    }
    return true;
}

/* Until all have said what they have to. */
static ls_status meet(ls__exchange *x, const ls__call *call)
{
    int64_t began = ls__now_ns();
    ls_status status =
        x->net ? ls__far_boards(x, call) : ls__comm_gather_inlined(x->comm, call, "", 0);
    x->waited_ms = (float)((double)(ls__now_ns() - began) * 1e-6);
    return status;
}

/* Leaves of all ranks in order, then the ranks' own notes. */
static ls_status read_boards(ls__exchange *x, ls__agreement *out)
{
    int size = x->comm->size, begin, end;
    bool fits = true;
    out->word = out->word_max = 0;
    out->weight = out->norm2 = 0;
    out->nrecords = 0;
    out->waits_ms = x->waits_ms;
    for (int r = 0; r < size; r++) {
        const ls__board *board = ls__exchange_board(x, r);
        out->word |= board->word;
        if (board->word2 > out->word_max) out->word_max = board->word2;
        x->waits_ms[r] = board->waited_ms;
        ls__plan_leaves(x->options.micro_batches, r, size, &begin, &end);
        for (int i = 0; i < end - begin; i++) fits = join(out, &board->notes[i]) && fits;
    }
    for (int r = 0; r < size; r++) {
        ls__plan_leaves(x->options.micro_batches, r, size, &begin, &end);
        fits = join(out, &ls__exchange_board(x, r)->notes[end - begin]) && fits;
    }
    if (fits) return LS_OK;
    return ls_fail(LS_ERR_ARG, "more than %d values are logged in one step", LS__RECORDS_MAX);
}

void ls__exchange_collect_sources(ls__exchange *x)
{
    int n = 0;
    for (int r = 0; r < x->comm->size; r++) {
        const ls__board *board = ls__exchange_board(x, r);
        for (int i = 0; i < board->nsources; i++, n++) {
            x->leaves[n] = board->sources[i].leaf;
            x->factors[n] = board->sources[i].factor;
            x->sources[n] = ls__exchange_buffer(x, r, board->sources[i].buffer);
        }
    }
    ls__tree_build(x->tree, x->leaves, n);
    if (n == 1 && x->factors[0] == 1.0f) x->sum = x->sources[0];
}

static double total_norm2(const ls__exchange *x)
{
    const double *norms = (const double *)(const void *)x->norms.base;
    double total = 0;
    for (int64_t i = 0; i < x->plan.nwhole; i++) {
        const ls__chunk *chunk = &x->plan.whole[i];
        int64_t nblocks = (chunk->count + LS__BLOCK - 1) / LS__BLOCK;
        if (!x->segments[chunk->segment].in_norm) continue;
        for (int64_t b = 0; b < nblocks; b++) total += norms[chunk->block + b];
    }
    return total;
}

/* The reduction and, when every owner has done its part, the norm. */
static ls_status reduce_with_norms(ls__exchange *x, ls__agreement *out)
{
    ls__exchange_reduce(x);
    if (x->net) LS_TRY(ls__far_norms(x));
    if (x->local->lane) {
        ls__comm_step(x->local);
        LS_TRY(ls__comm_await_step(x->local, x->local->progress));
    }
    out->norm2 = total_norm2(x);
    return LS_OK;
}

ls_status ls__exchange_agree(ls__exchange *x, uint64_t word, uint64_t word2, ls__agreement *out)
{
    ls_comm *comm = x->comm;
    LS_ASSERT(!x->agreed && x->next == x->end && x->buffer < 0);
    if (comm->broken != LS_OK) return ls__comm_broken(comm);
    LS_TRY(ls__works_finish(comm));
    LS_TRY(ls__exchange_wait(x));
    ls__board *board = ls__exchange_near_board(x, x->me);
    board->word = word;
    board->word2 = word2;
    board->waited_ms = x->waited_ms;
    board->nsources = x->nown;
    memcpy(board->sources, x->own, (size_t)x->nown * sizeof *x->own);
    ls__call call = { .op = LS__OP_AGREE,
                      .count = x->options.count,
                      .site = __builtin_return_address(0) };
    LS_TRY(meet(x, &call));
    LS_TRY(read_boards(x, out));
    if (!x->net)
        ls__exchange_collect_sources(x);
    else if (!x->options.on_device)
        LS_TRY(ls__far_reduce(x));
    if (x->options.norms) LS_TRY(reduce_with_norms(x, out));
    x->agreed = true;
    ls__comm_leave(x->local);
    return LS_OK;
}
