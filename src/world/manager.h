/* Ranks of several machines whose launcher says nothing of where the first one is: what started them
 * (mpirun, mpiexec: a process manager) lets them exchange one text before they can reach each other. */
#ifndef LS_WORLD_MANAGER_H
#define LS_WORLD_MANAGER_H

#include "world/environment.h"
#include "world/pmi.h"

enum { LS__WHERE_TEXT = LS__PMI_VALUE_MAX };

/* Where rank 0's root is, and what proves that one belongs to the job. */
typedef struct ls__where {
    char secret[LS__SECRET_TEXT];
    int port;
    char addresses[LS__WHERE_TEXT]; /* numeric, spaces between */
} ls__where;

/* "secret/port/address/address...". Addresses that have no room are left out. */
void ls__where_write(const ls__where *where, char text[LS__WHERE_TEXT]);
ls_status ls__where_read(const char *text, ls__where *out);

typedef struct ls__manager ls__manager;

static inline bool ls__found_by_manager(const ls__place *place)
{
    return place->found == LS__FOUND_BY_PMIX || place->found == LS__FOUND_BY_PMI;
}

/* [all] Rank 0's text gets to all. */
ls_status ls__manager_share(const ls__place *place, int timeout_ms, char text[LS__WHERE_TEXT],
                            ls__manager **out);
/* When the rank ends. NULL is fine. */
void ls__manager_leave(ls__manager *manager);

#endif
