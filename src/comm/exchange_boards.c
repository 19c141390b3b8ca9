/* Boards on their way between nodes: as much of each as is filled in, one after the other.
 *
 * What arrives is checked before it is used as counts: another build of the library may have sent
 * it. */
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "comm/exchange_internal.h"

typedef struct packed {
    uint64_t word, word2;
    int32_t nsources, nnotes;
    float waited_ms;
} packed;

/* Notes of rank r's board: its leaves', and its own. */
static int nnotes_of(const ls__exchange *x, int r)
{
    int begin, end;
    ls__plan_leaves(x->options.micro_batches, r, x->comm->size, &begin, &end);
    return end - begin + 1;
}

static size_t note_nbytes(const ls__note *note)
{
    return offsetof(ls__note, records) + (size_t)note->nrecords * sizeof *note->records;
}

static unsigned char *put(unsigned char *to, const void *data, size_t nbytes)
{
    memcpy(to, data, nbytes);
    return to + nbytes;
}

static unsigned char *pack(const ls__exchange *x, int r, unsigned char *to)
{
    const ls__board *board = ls__exchange_board(x, r);
    packed head = { board->word, board->word2, board->nsources, nnotes_of(x, r), board->waited_ms };
    to = put(to, &head, sizeof head);
    to = put(to, board->sources, (size_t)board->nsources * sizeof *board->sources);
    for (int i = 0; i < head.nnotes; i++)
        to = put(to, &board->notes[i], note_nbytes(&board->notes[i]));
    return to;
}

typedef struct reader {
    const unsigned char *at;
    size_t left;
} reader;

static bool take(reader *from, void *data, size_t nbytes)
{
    if (nbytes > from->left) return false;
    memcpy(data, from->at, nbytes);
    from->at += nbytes;
    from->left -= nbytes;
    return true;
}

static bool take_note(reader *from, ls__note *note)
{
    if (!take(from, note, offsetof(ls__note, records))) return false;
    if (note->nrecords < 0 || note->nrecords > LS__RECORDS_MAX) return false;
    return take(from, note->records, (size_t)note->nrecords * sizeof *note->records);
}

static bool unpack(const ls__exchange *x, int r, reader *from)
{
    ls__board *board = ls__exchange_board(x, r);
    packed head;
    if (!take(from, &head, sizeof head) || head.nsources < 0 ||
        head.nsources > x->rank_nbuffers[r] || head.nnotes != nnotes_of(x, r))
        return false;
    board->word = head.word;
    board->word2 = head.word2;
    board->waited_ms = head.waited_ms;
    board->nsources = head.nsources;
    bool fits = take(from, board->sources, (size_t)head.nsources * sizeof *board->sources);
    for (int i = 0; i < head.nnotes && fits; i++) fits = take_note(from, &board->notes[i]);
    return fits;
}

static ls_status unpack_all(ls__exchange *x)
{
    ls__net *net = x->net;
    for (int m = 0; m < net->n; m++) {
        reader from = { net->theirs[m], net->nbytes[m] };
        for (int l = 0; l < ls__node_size(net, m) && m != net->me; l++)
            if (!unpack(x, ls__node_rank(net, m, l), &from))
                return ls_fail(LS_ERR_MISMATCH,
                               "what rank %d on node %d says at the end of a step makes no sense; "
                               "does it run the same version of Lockstep?",
                               ls__node_rank(net, m, l), m);
    }
    return LS_OK;
}

ls_status ls__far_boards(ls__exchange *x, const ls__call *call)
{
    ls__net *net = x->net;
    ls_status status = ls__comm_gather_inlined(net->local, call, "", 0);
    if (ls__net_speaks(net)) {
        unsigned char *to = net->brought;
        for (int l = 0; l < net->local->size && status == LS_OK; l++)
            to = pack(x, ls__node_rank(net, net->me, l), to);
        status = ls__net_trade(net, call, status, (size_t)(to - net->brought));
        if (status == LS_OK) status = unpack_all(x);
    }
    return ls__net_announce(net, status);
}
