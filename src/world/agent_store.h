/* A client of PyTorch's TCPStore, as far as two machines need it to find each other: torchrun runs one
 * at MASTER_ADDR and MASTER_PORT when TORCHELASTIC_USE_AGENT_STORE is True. */
#ifndef LS_WORLD_AGENT_STORE_H
#define LS_WORLD_AGENT_STORE_H

#include <stddef.h>

#include <lockstep/base.h>

ls_status ls__agent_set(const char *host, int port, const char *key, const char *value,
                        int timeout_ms);
/* Waits for the key; timeout_ms -1 = none. out: a text, which must fit. */
ls_status ls__agent_get(const char *host, int port, const char *key, int timeout_ms, char *out,
                        size_t limit);

#endif
