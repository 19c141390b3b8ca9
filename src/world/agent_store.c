/* The wire protocol of PyTorch's TCPStore (since 2.2: a magic number, then a ping): a byte for the kind
 * of request, lengths of 64 bits, numbers in this machine's byte order, which both ends share. Expected:
 * one request per machine and job. */
#include "world/agent_store.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "world/store_client.h"
#include "world/store_server.h"

enum { ASK_VALIDATE = 0, ASK_SET = 1, ASK_GET = 3, ASK_WAIT = 6, ASK_PING = 13 };
enum { MAGIC = 0x3C85F7CE, NONCE = 0x4c53, KEY_MAX = 400, VALUE_MAX = 2048 };

typedef struct agent {
    int fd;
    double deadline; /* negative: none */
    unsigned char out[2 * KEY_MAX + VALUE_MAX];
    size_t nbytes;
} agent;

static void put(agent *a, const void *data, size_t nbytes)
{
    LS_ASSERT(a->nbytes + nbytes <= sizeof a->out);
    memcpy(a->out + a->nbytes, data, nbytes);
    a->nbytes += nbytes;
}

static void put_kind(agent *a, int kind)
{
    unsigned char byte = (unsigned char)kind;
    put(a, &byte, 1);
}

static void put_text(agent *a, const char *prefix, const char *text)
{
    uint64_t size = strlen(prefix) + strlen(text);
    put(a, &size, sizeof size);
    put(a, prefix, strlen(prefix));
    put(a, text, strlen(text));
}

static void put_ping(agent *a)
{
    uint32_t nonce = NONCE;
    put_kind(a, ASK_PING);
    put(a, &nonce, sizeof nonce);
}

static ls_status flush(agent *a)
{
    ls_status status = ls__socket_write(a->fd, a->out, a->nbytes);
    a->nbytes = 0;
    return status == LS_OK ? status : ls_fail(LS_ERR_PEER, "torchrun's store is lost");
}

static ls_status read_all(agent *a, void *data, size_t nbytes)
{
    char *to = data;
    while (nbytes > 0) {
        double left = a->deadline - ls__now();
        int ms = a->deadline < 0 ? -1
                 : left <= 0     ? 0
                 : left > 1e6    ? 1000000000
                                 : (int)(left * 1e3) + 1;
        int ready = poll(&(struct pollfd) { .fd = a->fd, .events = POLLIN }, 1, ms);
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "torchrun's store does not answer");
        ssize_t n = recv(a->fd, to, nbytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0)
            return ls_fail(LS_ERR_PEER, "torchrun's store ended the connection: its PyTorch may be "
                                        "older than 2.2");
        to += n;
        nbytes -= (size_t)n;
    }
    return LS_OK;
}

static ls_status read_ping(agent *a)
{
    uint32_t nonce;
    LS_TRY(read_all(a, &nonce, sizeof nonce));
    if (nonce == NONCE) return LS_OK;
    return ls_fail(LS_ERR_DATA,
                   "who listens at MASTER_ADDR and MASTER_PORT is not torchrun's store");
}

static ls_status begin(const char *host, int port, const char *key, int timeout_ms, agent *a)
{
    uint32_t magic = MAGIC;
    *a = (agent) { .fd = -1, .deadline = timeout_ms < 0 ? -1 : ls__now() + timeout_ms * 1e-3 };
    if (strlen(key) + 1 > KEY_MAX)
        return ls_fail(LS_ERR_ARG, "a key of torchrun's store is too long");
    LS_TRY(ls__connect(&(ls__address) { .host = host, .port = port }, timeout_ms, &a->fd));
    put_kind(a, ASK_VALIDATE);
    put(a, &magic, sizeof magic);
    put_ping(a);
    LS_TRY(flush(a));
    return read_ping(a);
}

static ls_status set(agent *a, const char *key, const char *value)
{
    put_kind(a, ASK_SET);
    put_text(a, "/", key);
    put_text(a, "", value);
    put_ping(a); /* a set has no reply; what comes behind it does */
    LS_TRY(flush(a));
    return read_ping(a);
}

static ls_status get(agent *a, const char *key, char *out, size_t limit)
{
    uint64_t one = 1, nbytes;
    unsigned char answer;
    put_kind(a, ASK_WAIT);
    put(a, &one, sizeof one);
    put_text(a, "/", key);
    LS_TRY(flush(a));
    LS_TRY(read_all(a, &answer, 1));
    put_kind(a, ASK_GET);
    put_text(a, "/", key);
    LS_TRY(flush(a));
    LS_TRY(read_all(a, &nbytes, sizeof nbytes));
    if (answer != 0 || nbytes >= limit)
        return ls_fail(LS_ERR_DATA, "torchrun's store answers with what is not lockstep's");
    LS_TRY(read_all(a, out, nbytes));
    out[nbytes] = '\0';
    return LS_OK;
}

ls_status ls__agent_set(const char *host, int port, const char *key, const char *value,
                        int timeout_ms)
{
    agent a;
    if (strlen(value) > VALUE_MAX)
        return ls_fail(LS_ERR_ARG, "a value for torchrun's store is too long");
    ls_status status = begin(host, port, key, timeout_ms, &a);
    if (status == LS_OK) status = set(&a, key, value);
    if (a.fd >= 0) close(a.fd);
    return status;
}

ls_status ls__agent_get(const char *host, int port, const char *key, int timeout_ms, char *out,
                        size_t limit)
{
    agent a;
    ls_status status = begin(host, port, key, timeout_ms, &a);
    if (status == LS_OK) status = get(&a, key, out, limit);
    if (a.fd >= 0) close(a.fd);
    return status;
}
