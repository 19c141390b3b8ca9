/* The store's contents: values, counters and barriers under names, and who waits for them. Knows
 * nothing of sockets: requests and replies are frames. Thread safe. */
#ifndef LS_WORLD_STORE_CORE_H
#define LS_WORLD_STORE_CORE_H

#include "world/store_frame.h"

typedef struct ls__core ls__core;

/* A reply to a request of client, at once or later; called with the core locked, so it may not call
 * the core. reply is borrowed during the call. */
typedef void ls__reply_fn(void *client, const ls__frame *reply);

ls_status ls__core_create(ls__core **out);
void ls__core_destroy(ls__core *core);

/* One request of a rank: SET, GET, ADD, DELETE, BARRIER or CANCEL. Exactly one reply follows, except for
 * CANCEL, which answers the request it names if that one still waits. client tells requests of
 * different connections apart. */
void ls__core_request(ls__core *core, void *client, ls__reply_fn *reply, int rank,
                      const ls__frame *request);
/* The client is gone: its waiting requests are dropped. */
void ls__core_forget(ls__core *core, const void *client);

/* Where a rank is, for texts that name it. */
ls_status ls__core_name_host(ls__core *core, int rank, const char *host);

/* Text such as "1, 2 and 5" of the ranks in [0, size) that are not in came; bounded. */
void ls__name_missing(const uint8_t *came, int size, char *out, size_t limit);
/* The same; ranks whose host is known with it: "2 (host b) and 5". hosts: (nhosts), NULL = not known. */
void ls__name_missing_at(const uint8_t *came, int size, char *const *hosts, int nhosts, char *out,
                         size_t limit);

#endif
