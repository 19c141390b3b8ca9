/* Byte-pair merging with a heap of candidate pairs over a linked list of tokens. A candidate that was
 * overtaken by another merge stays in the heap and is recognized when it comes up, so nothing is
 * ever searched for. Most pieces are words of a few bytes, but a text may hold one line of a million
 * letters. */
#include "data/bpe.h"

#include "base/check.h"
#include "base/memory.h"

static const uint32_t NO_NODE = UINT32_MAX;

/* --- merges --- */

ls_status ls__bpe_reserve(ls__bpe *bpe, int64_t room)
{
    LS_ASSERT(room >= 0 && room < INT32_MAX);
    uint64_t nslots = 16;
    while (nslots < 2 * (uint64_t)room) nslots *= 2;
    bpe->merges = ls__alloc((size_t)room, sizeof *bpe->merges);
    bpe->slots = ls__alloc(nslots, sizeof *bpe->slots);
    if (!bpe->merges || !bpe->slots) return LS_ERR_MEMORY;
    for (uint64_t i = 0; i < nslots; i++) bpe->slots[i] = -1;
    bpe->nslots = nslots;
    bpe->room = room;
    return LS_OK;
}

void ls__bpe_close(ls__bpe *bpe)
{
    ls__free(bpe->merges);
    ls__free(bpe->slots);
    *bpe = (ls__bpe) { .nmerges = 0 };
}

/* The pair's slot, or the free one where it would be. */
static int32_t *find_slot(const ls__bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = (key * 0x9E3779B97F4A7C15u) >> 32; /* Fibonacci hashing (Knuth, TAOCP 6.4) */
    for (;; at++) {
        int32_t *slot = &bpe->slots[at & (bpe->nslots - 1)];
        if (*slot < 0) return slot;
        const ls__bpe_merge *m = &bpe->merges[*slot];
        if (m->left == left && m->right == right) return slot;
    }
}

bool ls__bpe_add(ls__bpe *bpe, ls__bpe_merge merge)
{
    LS_ASSERT(bpe->nmerges < bpe->room);
    int32_t *slot = find_slot(bpe, merge.left, merge.right);
    if (*slot >= 0) return false;
    *slot = (int32_t)bpe->nmerges;
    bpe->merges[bpe->nmerges++] = merge;
    return true;
}

/* --- the heap --- */

static void heap_push(ls__bpe_scratch *s, uint64_t entry)
{
    size_t i = s->heaped++;
    for (; i > 0 && s->heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
}

static uint64_t heap_pop(ls__bpe_scratch *s)
{
    uint64_t least = s->heap[0], last = s->heap[--s->heaped];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heaped) break;
        if (child + 1 < s->heaped && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return least;
}

/* --- encoding --- */

static ls_status make_room(ls__bpe_scratch *s, size_t nbytes)
{
    if (nbytes <= s->room) return LS_OK;
    if (nbytes >= NO_NODE)
        return ls_fail(LS_ERR_DATA, "a piece of %zu bytes without a space cannot be encoded",
                       nbytes);
    ls__bpe_scratch_close(s);
    size_t room = nbytes < 256 ? 256 : nbytes;
    s->nodes = ls__alloc(room, sizeof *s->nodes);
    s->heap = ls__alloc(room, 2 * sizeof *s->heap);
    s->tokens = ls__alloc(room, sizeof *s->tokens);
    if (!s->nodes || !s->heap || !s->tokens) return LS_ERR_MEMORY;
    s->room = room;
    return LS_OK;
}

void ls__bpe_scratch_close(ls__bpe_scratch *s)
{
    ls__free(s->nodes);
    ls__free(s->heap);
    ls__free(s->tokens);
    *s = (ls__bpe_scratch) { 0 };
}

/* If node and the one behind it are a pair, a candidate. */
static void consider(const ls__bpe *bpe, ls__bpe_scratch *s, uint32_t node)
{
    uint32_t behind = s->nodes[node].behind;
    if (behind == NO_NODE) return;
    int32_t rank = *find_slot(bpe, s->nodes[node].token, s->nodes[behind].token);
    if (rank >= 0) heap_push(s, (uint64_t)rank << 32 | node);
}

/* A candidate is still one if its two tokens are what they were. */
static void merge(const ls__bpe *bpe, ls__bpe_scratch *s, uint64_t candidate)
{
    const ls__bpe_merge *m = &bpe->merges[candidate >> 32];
    uint32_t node = (uint32_t)candidate;
    ls__bpe_node *left = &s->nodes[node];
    if (left->token != m->left || left->behind == NO_NODE) return;
    ls__bpe_node *right = &s->nodes[left->behind];
    if (right->token != m->right) return;
    left->token = m->token;
    left->behind = right->behind;
    right->token = -1;
    if (left->behind != NO_NODE) s->nodes[left->behind].before = node;
    consider(bpe, s, node);
    if (left->before != NO_NODE) consider(bpe, s, left->before);
}

ls_status ls__bpe_encode(const ls__bpe *bpe, ls__bpe_scratch *s, const uint8_t *piece,
                         size_t nbytes, int64_t *count)
{
    *count = 0;
    LS_TRY(make_room(s, nbytes));
    s->heaped = 0;
    for (uint32_t i = 0; i < nbytes; i++)
        s->nodes[i] = (ls__bpe_node) { bpe->bytes[piece[i]], i == 0 ? NO_NODE : i - 1,
                                       i + 1 == nbytes ? NO_NODE : i + 1 };
    for (uint32_t i = 0; i < nbytes; i++) consider(bpe, s, i);
    /* A merge takes one candidate and adds two at most, and there are less than nbytes: so the
     * heap's room of 2 * nbytes is enough. */
    while (s->heaped > 0) merge(bpe, s, heap_pop(s));
    for (uint32_t i = 0; i < nbytes && i != NO_NODE; i = s->nodes[i].behind)
        s->tokens[(*count)++] = s->nodes[i].token;
    return LS_OK;
}
