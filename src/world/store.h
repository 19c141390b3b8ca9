/* Store: a small key-value server in the supervisor (or the local root, or in process for one
 * rank), and its client.
 *
 * Frames are binary, length-prefixed and bounded: keys to 255 bytes, values to 1 MiB. Served over
 * connected socket pairs (our own ranks), abstract Unix sockets (ranks started by others; the
 * peer's uid is checked) or TCP (with a secret). A client is thread safe; a waiting get does not
 * hold up other requests. */
#ifndef LS_WORLD_STORE_H
#define LS_WORLD_STORE_H

#include <lockstep/base.h>

typedef struct ls__store ls__store; /* a client */

ls_status ls__store_set(ls__store *store, const char *key, const void *value, size_t nbytes);
/* Waits for the key; value freed by ls__free. LS_ERR_TIMEOUT names the key; timeout_ms -1 = none.
 */
ls_status ls__store_get(ls__store *store, const char *key, int timeout_ms, char **value,
                        size_t *nbytes);
/* Forgets a value; a name that is not there is fine. */
ls_status ls__store_delete(ls__store *store, const char *key);
/* Adds to a counter that begins at 0; *out = the sum after it. */
ls_status ls__store_add(ls__store *store, const char *key, int64_t amount, int64_t *out);
/* Waits until count different ranks have come; LS_ERR_TIMEOUT names the missing ones. A name is
 * used once. */
ls_status ls__store_barrier(ls__store *store, const char *name, int count, int timeout_ms);

#endif
