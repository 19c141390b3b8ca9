/* The client of torchrun's store, against bytes as PyTorch 2.15's server and client send them, and against
 * servers that are none. */
#include "testing.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world/agent_store.h"
#include "world/store_server.h"

typedef struct exchange {
    const unsigned char *expect; /* (nexpect) NULL: do not read */
    size_t nexpect;
    const char *answer; /* (nanswer) */
    size_t nanswer;
} exchange;

typedef struct server {
    int fd, port;
    const exchange *exchanges;
    int count;
    bool as_expected;
    pthread_t thread;
} server;

static bool read_all(int fd, unsigned char *to, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t n = recv(fd, to, nbytes, 0);
        if (n <= 0) return false;
        to += n;
        nbytes -= (size_t)n;
    }
    return true;
}

static void *serve(void *user)
{
    server *s = user;
    unsigned char data[256];
    int fd = -1;
    while (fd < 0) fd = accept(s->fd, NULL, NULL);
    s->as_expected = true;
    for (int i = 0; i < s->count; i++) {
        const exchange *e = &s->exchanges[i];
        if (!read_all(fd, data, e->nexpect) || memcmp(data, e->expect, e->nexpect) != 0)
            s->as_expected = false;
        if (e->nanswer) send(fd, e->answer, e->nanswer, MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

static void begin(server *s, const exchange *exchanges, int count)
{
    *s = (server) { .exchanges = exchanges, .count = count };
    assert_ok(ls__listen_tcp("127.0.0.1", &s->port, &s->fd));
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end(server *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
}

#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1
#define HELLO       "\0\xce\xf7\x85\x3c\x0d\x53\x4c\0\0"
#define PONG        "\x53\x4c\0\0", 4
#define KEY         "\5\0\0\0\0\0\0\0/a/b1"

static void a_value_is_set(void **state)
{
    (void)state;
    static const exchange talk[] = {
        { BYTES(HELLO), PONG },
        { BYTES("\1" KEY "\4\0\0\0\0\0\0\0here\x0d\x53\x4c\0\0"), PONG },
    };
    server s;
    begin(&s, talk, 2);
    assert_ok(ls__agent_set("127.0.0.1", s.port, "a/b1", "here", 5000));
    end(&s);
    assert_true(s.as_expected);
}

static void a_value_is_got(void **state)
{
    (void)state;
    static const exchange talk[] = {
        { BYTES(HELLO), PONG },
        { BYTES("\6\1\0\0\0\0\0\0\0" KEY), "\0", 1 },
        { BYTES("\3" KEY), "\4\0\0\0\0\0\0\0here", 12 },
    };
    char value[16];
    server s;
    begin(&s, talk, 3);
    assert_ok(ls__agent_get("127.0.0.1", s.port, "a/b1", 5000, value, sizeof value));
    assert_string_equal(value, "here");
    end(&s);
    assert_true(s.as_expected);
}

static void what_is_no_store_is_told(void **state)
{
    (void)state;
    static const exchange other[] = { { BYTES(HELLO), "HTTP", 4 } };
    static const exchange old[] = { { BYTES(HELLO), NULL, 0 } };
    static const exchange huge[] = {
        { BYTES(HELLO), PONG },
        { BYTES("\6\1\0\0\0\0\0\0\0" KEY), "\0", 1 },
        { BYTES("\3" KEY), "\xff\xff\xff\xff\xff\xff\xff\xff", 8 },
    };
    char value[16];
    server s;
    begin(&s, other, 1);
    assert_fails(ls__agent_set("127.0.0.1", s.port, "a", "b", 5000), LS_ERR_DATA, "not torchrun's");
    end(&s);
    begin(&s, old, 1);
    assert_fails(ls__agent_set("127.0.0.1", s.port, "a", "b", 5000), LS_ERR_PEER, "older than 2.2");
    end(&s);
    begin(&s, huge, 3);
    assert_fails(ls__agent_get("127.0.0.1", s.port, "a/b1", 5000, value, sizeof value), LS_ERR_DATA,
                 "not lockstep's");
    end(&s);
    int port = 0, fd;
    assert_ok(ls__listen_tcp("127.0.0.1", &port, &fd)); /* listens, and says nothing */
    assert_fails(ls__agent_get("127.0.0.1", port, "a", 100, value, sizeof value), LS_ERR_TIMEOUT,
                 "does not answer");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_set),
        cmocka_unit_test(a_value_is_got),
        cmocka_unit_test(what_is_no_store_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
