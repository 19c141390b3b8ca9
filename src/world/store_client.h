/* The store's client, seen from inside the world: who makes one, and who reads its socket. */
#ifndef LS_WORLD_STORE_CLIENT_H
#define LS_WORLD_STORE_CLIENT_H

#include "world/store.h"
#include "world/store_core.h"
#include "world/store_frame.h"

/* On a core in this process (one rank; ranks as threads). Borrows core. */
ls_status ls__store_create_direct(ls__core *core, int rank, ls__store **out);
/* On a connected stream socket, which it takes over. Somebody must call ls__store_receive. */
ls_status ls__store_create_socket(int fd, ls__store **out);
void ls__store_destroy(ls__store *store);
int ls__store_fd(const ls__store *store); /* -1: direct */

/* A frame that is not answered. Waits while the socket is full; LS_ERR_PEER when the other end is
 * gone. Without a socket: nothing. */
ls_status ls__store_send(ls__store *store, const ls__frame *frame);
/* The same, but given up at once when it would wait. */
bool ls__store_try_send(ls__store *store, const ls__frame *frame);

/* Reads what has come, hands replies to who waits for them and other frames to each. Called by one
 * thread. LS_ERR_PEER at the end of the stream, LS_ERR_DATA for bytes that are no frames. */
ls_status ls__store_receive(ls__store *store, void (*each)(void *user, const ls__frame *frame),
                            void *user);
/* All waiting and all later requests fail with this status and text. */
void ls__store_fail(ls__store *store, ls_status status, const char *text);

/* Writes the bytes to a socket, waiting while it is full; for whoever talks before a store is made.
 */
ls_status ls__socket_write(int fd, const void *data, size_t nbytes);

#endif
