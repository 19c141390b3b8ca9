/* Leaves: where gradients go, and which finished subtrees are merged.
 *
 * Merging two buffers costs twelve bytes of memory traffic per element on every rank, leaving them
 * to the reduction four on the owner alone. So subtrees are merged only when a leaf needs a buffer
 * and none is free; there are as many buffers as merging at once would need. The bits are the same
 * either way: the tree is. */
#include "comm/exchange_internal.h"

#include <string.h>

#include "base/check.h"

void ls__exchange_begin_step(ls__exchange *x)
{
    x->next = x->begin;
    x->buffer = -1;
    x->nown = 0;
    x->used = 0;
    x->sum = NULL;
    ls__board *board = ls__exchange_near_board(x, x->me);
    for (int i = 0; i <= x->end - x->begin; i++) {
        board->notes[i].weight = 0;
        board->notes[i].nrecords = 0;
    }
}

/* Whether own sources i and i + 1 are siblings in the tree: the node over both has no leaf of
 * another rank, none to come, and no other source. */
static bool mergeable(const ls__exchange *x, int i)
{
    int first, span = ls__tree_node(x->own[i].leaf, x->own[i + 1].leaf, &first);
    int end = first + span;
    if (end > x->options.micro_batches) end = x->options.micro_batches;
    if (first < x->begin || end > x->next) return false;
    if (i > 0 && x->own[i - 1].leaf >= first) return false;
    return i + 2 >= x->nown || x->own[i + 2].leaf >= end;
}

static void merge_chunk(void *context, int64_t i)
{
    const ls__exchange *x = context;
    const ls__chunk *chunk = &x->plan.whole[i];
    const ls__source *a = x->merging, *b = a + 1;
    float *into = ls__exchange_buffer(x, x->me, a->buffer) + chunk->offset;
    const float *from = ls__exchange_buffer(x, x->me, b->buffer) + chunk->offset;
    const ls__kernels *kernels = x->comm->kernels;
    if (a->factor == 1.0f && b->factor == 1.0f)
        kernels->combine[LS_DTYPE_F32][LS_REDUCE_SUM](into, into, from, (size_t)chunk->count);
    else
        kernels->add_scaled(into, into, a->factor, from, b->factor, (size_t)chunk->count);
}

/* Merges one pair, the newest, which is likeliest still in cache. */
static void merge_newest(ls__exchange *x)
{
    int i = x->nown - 2;
    while (i >= 0 && !mergeable(x, i)) i--;
    LS_ASSERT(i >= 0);
    x->merging = &x->own[i];
    if (!x->options.on_device) ls__exchange_parallel(x, x->plan.nwhole, merge_chunk);
    x->used &= ~(1u << x->own[i + 1].buffer);
    x->own[i].factor = 1.0f;
    memmove(&x->own[i + 1], &x->own[i + 2], sizeof *x->own * (size_t)(x->nown - i - 2));
    x->nown--;
}

static int free_buffer(const ls__exchange *x)
{
    for (int b = 0; b < x->nbuffers; b++)
        if (!(x->used >> b & 1)) return b;
    return -1;
}

float *ls__exchange_leaf(ls__exchange *x)
{
    LS_ASSERT(x->waited && !x->agreed && x->next < x->end);
    if (x->buffer < 0) {
        int b = free_buffer(x);
        if (b < 0) merge_newest(x);
        x->buffer = b < 0 ? free_buffer(x) : b;
    }
    return ls__exchange_buffer(x, x->me, x->buffer);
}

void ls__exchange_leaf_done(ls__exchange *x, bool present, float factor)
{
    LS_ASSERT(x->next < x->end && (!present || x->buffer >= 0));
    if (present) {
        x->own[x->nown++] = (ls__source) { x->next, x->buffer, factor };
        x->used |= 1u << x->buffer;
    }
    x->buffer = -1;
    x->next++;
}

/* The note of the leaf in hand, or behind the last one the rank's own. */
static ls__note *note_in_hand(ls__exchange *x)
{
    return &ls__exchange_near_board(x, x->me)->notes[x->next - x->begin];
}

bool ls__exchange_record(ls__exchange *x, const char *name, double sum, double weight)
{
    ls__note *note = note_in_hand(x);
    int i = 0;
    if (strlen(name) >= LS__RECORD_NAME_MAX) return false;
    while (i < note->nrecords && strcmp(note->records[i].name, name) != 0) i++;
    if (i == LS__RECORDS_MAX) return false;
    ls__record *record = &note->records[i];
    if (i == note->nrecords) {
        *record = (ls__record) { .sum = 0 };
        strcpy(record->name, name);
        note->nrecords++;
    }
    record->sum += sum;
    record->weight += weight;
    return true;
}

void ls__exchange_weight(ls__exchange *x, double weight)
{
    note_in_hand(x)->weight += weight;
}
