/* A set of texts, bounded, with a number for each in the order of their bytes once it is sorted. */
#ifndef LS_DATA_TEXT_SET_H
#define LS_DATA_TEXT_SET_H

#include <lockstep/base.h>

/* Begins as all zero. */
typedef struct ls__text_set {
    char **texts; /* (count) NUL-ended */
    int64_t count, room;
    int32_t *slots; /* (nslots) hash table of indices, -1 = free */
    uint64_t nslots;
} ls__text_set;

/* Adds text, which holds no NUL, if it is not there yet. */
ls_status ls__text_set_add(ls__text_set *set, const char *text, size_t nbytes);
/* Its index; -1 if it is not there. */
int64_t ls__text_set_find(const ls__text_set *set, const char *text, size_t nbytes);
/* Orders the texts by their bytes, or by their values if all of them are numbers. */
void ls__text_set_sort(ls__text_set *set, bool by_value);
void ls__text_set_close(ls__text_set *set);

#endif
