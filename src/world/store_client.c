/* The store's client. A request is sent by the thread that makes it, which then sleeps until the
 * reading thread (the watcher) has its reply; so many threads may wait at once and a slow get holds
 * up nobody. Expected: a few requests a second, each some 30 us. */
#include "world/store_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

enum { CANCEL_WAIT_MS = 3000 }; /* for the server's text after a timeout */

typedef struct pending {
    struct pending *next;
    uint32_t id;
    bool done;
    ls_status status;
    int64_t number;
    char *value; /* ended by NUL; NULL = no memory for it */
    size_t nbytes;
} pending;

struct ls__store {
    int fd;         /* -1: direct */
    ls__core *core; /* direct */
    int rank;

    pthread_mutex_t send_lock; /* one frame at a time on the socket */
    pthread_mutex_t lock;      /* of all below */
    pthread_cond_t replied;
    pending *waiting;
    uint32_t last_id;
    ls_status failed;
    char failed_text[512];

    ls__bytes in; /* of the reading thread alone */
};

static ls_status create(int fd, ls__core *core, int rank, ls__store **out)
{
    *out = NULL;
    ls__store *store = ls__alloc(1, sizeof *store);
    if (!store) return LS_ERR_MEMORY;
    store->fd = fd;
    store->core = core;
    store->rank = rank;
    pthread_mutex_init(&store->send_lock, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&store->replied, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = store;
    return LS_OK;
}

ls_status ls__store_create_direct(ls__core *core, int rank, ls__store **out)
{
    return create(-1, core, rank, out);
}

ls_status ls__store_create_socket(int fd, ls__store **out)
{
    return create(fd, NULL, -1, out);
}

void ls__store_destroy(ls__store *store)
{
    if (!store) return;
    if (store->core) ls__core_forget(store->core, store);
    if (store->fd >= 0) close(store->fd);
    ls__bytes_free(&store->in);
    pthread_cond_destroy(&store->replied);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->send_lock);
    ls__free(store);
}

int ls__store_fd(const ls__store *store)
{
    return store->fd;
}

ls_status ls__socket_write(int fd, const void *data, size_t nbytes)
{
    const char *from = data;
    while (nbytes > 0) {
        ssize_t n = send(fd, from, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            from += n;
            nbytes -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            poll(&(struct pollfd) { .fd = fd, .events = POLLOUT }, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            return ls__fail_errno(LS_ERR_PEER, "the connection to the job's supervisor is lost");
        }
    }
    return LS_OK;
}

ls_status ls__store_send(ls__store *store, const ls__frame *frame)
{
    if (store->fd < 0) return LS_OK;
    char small[512];
    size_t size = ls__frame_size(frame);
    char *data = size <= sizeof small ? small : ls__alloc(size, 1);
    if (!data) return LS_ERR_MEMORY;
    ls__frame_write(frame, data);
    pthread_mutex_lock(&store->send_lock);
    ls_status status = ls__socket_write(store->fd, data, size);
    pthread_mutex_unlock(&store->send_lock);
    if (data != small) ls__free(data);
    return status;
}

bool ls__store_try_send(ls__store *store, const ls__frame *frame)
{
    char data[1024];
    size_t size = ls__frame_size(frame);
    if (store->fd < 0 || size > sizeof data) return false;
    ls__frame_write(frame, data);
    if (pthread_mutex_trylock(&store->send_lock) != 0) return false;
    ssize_t n = send(store->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A part is out: the rest has to follow. It is short, and the other end reads all the time. */
    if (n > 0 && (size_t)n < size &&
        ls__socket_write(store->fd, data + n, size - (size_t)n) != LS_OK)
        n = -1;
    pthread_mutex_unlock(&store->send_lock);
    return n > 0;
}

/* The reply reaches the request it belongs to; one that nobody waits for any more is dropped. */
static void complete(void *client, const ls__frame *reply)
{
    ls__store *store = client;
    pthread_mutex_lock(&store->lock);
    for (pending **link = &store->waiting; *link; link = &(*link)->next) {
        pending *p = *link;
        if (p->id != reply->id) continue;
        p->status = reply->status;
        p->number = reply->number;
        p->nbytes = reply->nbytes;
        p->value = ls__alloc(reply->nbytes + 1, 1);
        if (p->value && reply->nbytes > 0) memcpy(p->value, reply->value, reply->nbytes);
        p->done = true;
        *link = p->next;
        pthread_cond_broadcast(&store->replied);
        break;
    }
    pthread_mutex_unlock(&store->lock);
}

void ls__store_fail(ls__store *store, ls_status status, const char *text)
{
    pthread_mutex_lock(&store->lock);
    if (store->failed == LS_OK) {
        store->failed = status;
        snprintf(store->failed_text, sizeof store->failed_text, "%s", text);
    }
    pthread_cond_broadcast(&store->replied);
    pthread_mutex_unlock(&store->lock);
}

ls_status ls__store_receive(ls__store *store, void (*each)(void *user, const ls__frame *frame),
                            void *user)
{
    LS_TRY(ls__bytes_reserve(&store->in, 4096));
    ls__bytes *in = &store->in;
    ssize_t n = recv(store->fd, in->data + in->end, in->capacity - in->end, MSG_DONTWAIT);
    if (n < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return LS_OK;
        return ls__fail_errno(LS_ERR_PEER, "the connection to the job's supervisor is lost");
    }
    if (n == 0) return ls_fail(LS_ERR_PEER, "the job's supervisor is gone");
    in->end += (size_t)n;
    for (;;) {
        ls__frame frame;
        size_t used;
        LS_TRY(ls__frame_parse(in->data + in->begin, in->end - in->begin, &frame, &used));
        if (used == 0) return LS_OK;
        if (frame.type == LS__FRAME_REPLY)
            complete(store, &frame);
        else
            each(user, &frame);
        in->begin += used;
    }
}

static ls_status submit(ls__store *store, const ls__frame *request)
{
    if (store->fd >= 0) return ls__store_send(store, request);
    ls__core_request(store->core, store, complete, store->rank, request);
    return LS_OK;
}

static struct timespec deadline_after(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* Locked: sleeps until p is done, the store failed or the time is over (timeout_ms -1 = none). */
static void await(ls__store *store, pending *p, int timeout_ms)
{
    struct timespec deadline = deadline_after(timeout_ms < 0 ? 0 : timeout_ms);
    while (!p->done && store->failed == LS_OK) {
        if (timeout_ms < 0)
            pthread_cond_wait(&store->replied, &store->lock);
        else if (pthread_cond_timedwait(&store->replied, &store->lock, &deadline) == ETIMEDOUT)
            return;
    }
}

static void unlink_pending(ls__store *store, const pending *p)
{
    for (pending **link = &store->waiting; *link; link = &(*link)->next) {
        if (*link == p) {
            *link = p->next;
            return;
        }
    }
}

/* Locked: what became of the request. */
static ls_status outcome(ls__store *store, pending *p)
{
    if (p->done && p->status == LS_OK && !p->value) return LS_ERR_MEMORY;
    if (p->done && p->status != LS_OK)
        return ls_fail(p->status, "%s", p->value ? p->value : ls__status_text(p->status));
    if (p->done) return LS_OK;
    if (store->failed != LS_OK) return ls_fail(store->failed, "%s", store->failed_text);
    return ls_fail(LS_ERR_TIMEOUT, "the job's store does not answer");
}

/* Sends the request and waits for its reply. On success p->value belongs to the caller. */
static ls_status call(ls__store *store, ls__frame *request, int timeout_ms, pending *p)
{
    *p = (pending) { 0 };
    pthread_mutex_lock(&store->lock);
    p->id = request->id = ++store->last_id;
    p->next = store->waiting;
    store->waiting = p;
    pthread_mutex_unlock(&store->lock);

    ls_status status = submit(store, request);
    bool sent = status == LS_OK;
    pthread_mutex_lock(&store->lock);
    if (sent) await(store, p, timeout_ms);
    if (sent && !p->done && store->failed == LS_OK) { /* the server knows who is missing */
        pthread_mutex_unlock(&store->lock);
        sent = submit(store, &(ls__frame) { .type = LS__FRAME_CANCEL, .id = p->id }) == LS_OK;
        pthread_mutex_lock(&store->lock);
        if (sent) await(store, p, CANCEL_WAIT_MS);
    }
    if (!p->done) unlink_pending(store, p);
    if (p->done || store->failed != LS_OK || status == LS_OK) status = outcome(store, p);
    pthread_mutex_unlock(&store->lock);
    if (status != LS_OK) {
        ls__free(p->value);
        p->value = NULL;
    }
    return status;
}

static ls_status set_key(ls__frame *request, const char *key)
{
    request->key = key;
    request->key_nbytes = strlen(key);
    if (request->key_nbytes == 0 || request->key_nbytes > LS__KEY_MAX)
        return ls_fail(LS_ERR_ARG, "a store's key has 1 to %d bytes, not %zu", LS__KEY_MAX,
                       request->key_nbytes);
    return LS_OK;
}

ls_status ls__store_set(ls__store *store, const char *key, const void *value, size_t nbytes)
{
    ls__frame request = { .type = LS__FRAME_SET, .value = value, .nbytes = nbytes };
    LS_TRY(set_key(&request, key));
    if (nbytes > LS__VALUE_MAX)
        return ls_fail(LS_ERR_ARG, "the store's \"%s\": %zu bytes are more than %d", key, nbytes,
                       LS__VALUE_MAX);
    pending p;
    LS_TRY(call(store, &request, -1, &p));
    ls__free(p.value);
    return LS_OK;
}

ls_status ls__store_get(ls__store *store, const char *key, int timeout_ms, char **value,
                        size_t *nbytes)
{
    *value = NULL;
    *nbytes = 0;
    ls__frame request = { .type = LS__FRAME_GET };
    LS_TRY(set_key(&request, key));
    pending p;
    LS_TRY(call(store, &request, timeout_ms, &p));
    *value = p.value;
    *nbytes = p.nbytes;
    return LS_OK;
}

ls_status ls__store_delete(ls__store *store, const char *key)
{
    ls__frame request = { .type = LS__FRAME_DELETE };
    LS_TRY(set_key(&request, key));
    pending p;
    LS_TRY(call(store, &request, -1, &p));
    ls__free(p.value);
    return LS_OK;
}

ls_status ls__store_add(ls__store *store, const char *key, int64_t amount, int64_t *out)
{
    ls__frame request = { .type = LS__FRAME_ADD, .number = amount };
    LS_TRY(set_key(&request, key));
    pending p;
    LS_TRY(call(store, &request, -1, &p));
    *out = p.number;
    ls__free(p.value);
    return LS_OK;
}

ls_status ls__store_barrier(ls__store *store, const char *name, int count, int timeout_ms)
{
    ls__frame request = { .type = LS__FRAME_BARRIER, .number = count };
    LS_TRY(set_key(&request, name));
    pending p;
    LS_TRY(call(store, &request, timeout_ms, &p));
    ls__free(p.value);
    return LS_OK;
}
