/* Byte-pair merging: the part of the encoding that knows neither text nor files. */
#ifndef LS_DATA_BPE_H
#define LS_DATA_BPE_H

#include <lockstep/base.h>

typedef struct ls__bpe_merge {
    int32_t left, right; /* two tokens in a row */
    int32_t token;       /* become this one */
} ls__bpe_merge;

typedef struct ls__bpe {
    int32_t bytes[256];    /* the token of each byte */
    ls__bpe_merge *merges; /* (nmerges) by rank, the most urgent first */
    int64_t nmerges, room;
    int32_t *slots; /* (nslots) hash table of ranks, -1 = free */
    uint64_t nslots;
} ls__bpe;

/* Begins with all zero. room: of merges, less than 2^31. */
ls_status ls__bpe_reserve(ls__bpe *bpe, int64_t room);
/* The next rank, within the room; false: the pair has one already. */
bool ls__bpe_add(ls__bpe *bpe, ls__bpe_merge merge);
void ls__bpe_close(ls__bpe *bpe);

/* What encoding needs besides, kept from piece to piece; begins as all zero. */
typedef struct ls__bpe_node {
    int32_t token; /* -1 = merged into the one before */
    uint32_t before, behind;
} ls__bpe_node;

typedef struct ls__bpe_scratch {
    ls__bpe_node *nodes; /* (room) */
    uint64_t *heap;      /* (2 * room) rank << 32 | node: the smallest is the next to merge */
    int32_t *tokens;     /* (room) */
    size_t room, heaped;
} ls__bpe_scratch;

/* The tokens of one piece, in scratch->tokens. Merges the pair of the lowest rank, the leftmost
 * first, until none is left: O(n log n) in the piece's bytes. */
ls_status ls__bpe_encode(const ls__bpe *bpe, ls__bpe_scratch *scratch, const uint8_t *piece,
                         size_t nbytes, int64_t *count);
void ls__bpe_scratch_close(ls__bpe_scratch *scratch);

#endif
