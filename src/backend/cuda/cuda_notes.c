/* Notes in the store: a key for each rank and exchange, so that an old note is never taken for a new
 * one. */
#include "backend/cuda/cuda_notes.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"

enum { PATIENCE_MS = 500, KEY = 96 };

void ls__cuda_notes_begin(cuda_notes *notes, const ls__link_store *store, int rank, int size,
                          const void *id, size_t nbytes)
{
    const unsigned char *bytes = id;
    *notes = (cuda_notes) { .store = *store, .rank = rank, .size = size };
    for (size_t i = 0; i < 16; i++) { /* all of the id's bytes, folded */
        unsigned char b = 0;
        for (size_t k = i; k < nbytes; k += 16) b ^= bytes[k];
        snprintf(notes->name + 2 * i, 3, "%02x", b);
    }
}

static const char *key_of(const cuda_notes *notes, int rank, uint64_t begun, char out[KEY])
{
    snprintf(out, KEY, "nccl/%s/%" PRIu64 "/%d", notes->name, begun, rank);
    return out;
}

void ls__cuda_notes_write(cuda_notes *notes, uint64_t begun)
{
    char key[KEY];
    if (!notes->store.set || notes->written == begun) return;
    notes->written = begun;
    if (notes->store.set(notes->store.user, key_of(notes, notes->rank, begun, key), "1", 1) !=
        LS_OK)
        ls__log(LS__LOG_DEBUG, "that this rank waits is not noted: %s", ls_error_text());
}

int ls__cuda_notes_missing(const cuda_notes *notes, uint64_t begun)
{
    for (int r = 0; notes->store.get && r < notes->size; r++) {
        char key[KEY], *value;
        size_t nbytes;
        if (r == notes->rank) continue;
        ls_status status = notes->store.get(notes->store.user, key_of(notes, r, begun, key),
                                            PATIENCE_MS, &value, &nbytes);
        if (status == LS_ERR_TIMEOUT) return r;
        if (status != LS_OK) return -1;
        ls__free(value);
    }
    return -1;
}
