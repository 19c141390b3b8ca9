/* Different texts of a column: a hash table over an array of them. Looked up once per value while a
 * table is read. */
#include "data/text_set.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/table_value.h"

/* The text's slot, or the free one where it would be. nslots > 0. */
static int32_t *find_slot(const ls__text_set *set, const char *text, size_t nbytes)
{
    for (uint64_t at = XXH3_64bits(text, nbytes);; at++) {
        int32_t *slot = &set->slots[at & (set->nslots - 1)];
        if (*slot < 0) return slot;
        const char *other = set->texts[*slot];
        if (strncmp(other, text, nbytes) == 0 && other[nbytes] == '\0') return slot;
    }
}

static void fill_slots(ls__text_set *set)
{
    for (uint64_t i = 0; i < set->nslots; i++) set->slots[i] = -1;
    for (int64_t i = 0; i < set->count; i++)
        *find_slot(set, set->texts[i], strlen(set->texts[i])) = (int32_t)i;
}

static ls_status grow(ls__text_set *set)
{
    int64_t room = set->room ? 2 * set->room : 16;
    char **texts = ls__realloc(set->texts, (size_t)room, sizeof *texts);
    if (!texts) return LS_ERR_MEMORY;
    set->texts = texts;
    int32_t *slots = ls__alloc((size_t)room, 2 * sizeof *slots);
    if (!slots) return LS_ERR_MEMORY;
    ls__free(set->slots);
    set->slots = slots;
    set->nslots = 2 * (uint64_t)room;
    set->room = room;
    fill_slots(set);
    return LS_OK;
}

ls_status ls__text_set_add(ls__text_set *set, const char *text, size_t nbytes)
{
    if (ls__text_set_find(set, text, nbytes) >= 0) return LS_OK;
    if (set->count == set->room) LS_TRY(grow(set));
    char *copy = ls__alloc(nbytes + 1, 1);
    if (!copy) return LS_ERR_MEMORY;
    memcpy(copy, text, nbytes);
    *find_slot(set, text, nbytes) = (int32_t)set->count;
    set->texts[set->count++] = copy;
    return LS_OK;
}

int64_t ls__text_set_find(const ls__text_set *set, const char *text, size_t nbytes)
{
    return set->nslots ? *find_slot(set, text, nbytes) : -1;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    const char *s = *(char *const *)a, *t = *(char *const *)b;
    double x = 0, y = 0;
    ls__table_number(s, strlen(s), '.', &x);
    ls__table_number(t, strlen(t), '.', &y);
    return x < y ? -1 : x > y ? 1 : strcmp(s, t);
}

void ls__text_set_sort(ls__text_set *set, bool by_value)
{
    if (set->count == 0) return;
    qsort(set->texts, (size_t)set->count, sizeof *set->texts, by_value ? by_number : by_bytes);
    fill_slots(set);
}

void ls__text_set_close(ls__text_set *set)
{
    for (int64_t i = 0; i < set->count; i++) ls__free(set->texts[i]);
    ls__free(set->texts);
    ls__free(set->slots);
    *set = (ls__text_set) { 0 };
}
