/* What ranks learn from a process manager: the text, and the words of PMI against a server of our own. */
#include "testing.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world/manager.h"

static void a_text_comes_back(void **state)
{
    (void)state;
    char text[LS__WHERE_TEXT];
    ls__where out, in = { .secret = "0123456789abcdef0123456789abcdef", .port = 4711 };
    strcpy(in.addresses, "10.0.0.7 fe80::1 192.168.1.2");
    ls__where_write(&in, text);
    assert_string_equal(text, "0123456789abcdef0123456789abcdef/4711/10.0.0.7/fe80::1/192.168.1.2");
    assert_ok(ls__where_read(text, &out));
    assert_memory_equal(&in, &out, sizeof in);
    /* too many: those that have room */
    in.addresses[0] = '\0';
    for (int i = 0; i < 18; i++) strcat(in.addresses, i ? " 10.100.100.1" : "10.100.100.1");
    ls__where_write(&in, text);
    assert_ok(ls__where_read(text, &out));
    assert_true(strlen(out.addresses) > 150 && strlen(out.addresses) < strlen(in.addresses));
}

static void what_is_none_is_refused(void **state)
{
    (void)state;
#define SECRET "0123456789abcdef0123456789abcdef"
    static const char *const bad[] = {
        "",
        SECRET,
        SECRET "/4711",
        SECRET "/4711/",
        SECRET "/0/10.0.0.7",
        SECRET "/65536/10.0.0.7",
        SECRET "/+1/10.0.0.7",
        SECRET "a/4711/10.0.0.7",
        "x" SECRET "/4711/10.0.0.7",
        SECRET "/4711/10.0.0.7/",
        SECRET "/4711/10.0.0.7 10.0.0.8",
        SECRET "/4711/host",
        SECRET "/4711/1234",
        SECRET "/4711/1111:1111:1111:1111:1111:1111:1111:1111:1111:1111",
    };
    ls__where out;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(ls__where_read(bad[i], &out), LS_ERR_DATA, "no address");
}

/* --- PMI --- */

typedef struct server {
    int fd;
    const char *refuses; /* a command; NULL = none */
    char put[300], log[200];
} server;

static void answer(server *s, const char *line)
{
    char text[400], command[32] = "";
    ls__pmi_word(line, "cmd", command, sizeof command);
    size_t used = strlen(s->log);
    snprintf(s->log + used, sizeof s->log - used, "%s ", command);
    if (strcmp(command, "put") == 0) ls__pmi_word(line, "value", s->put, sizeof s->put);
    bool refused = s->refuses && strcmp(command, s->refuses) == 0;
    const char *kind = !strcmp(command, "init")             ? "response_to_init"
                       : !strcmp(command, "get_my_kvsname") ? "my_kvsname"
                       : !strcmp(command, "put")            ? "put_result"
                       : !strcmp(command, "barrier_in")     ? "barrier_out"
                       : !strcmp(command, "get")            ? "get_result"
                                                            : "finalize_ack";
    int n = snprintf(text, sizeof text, "cmd=%s rc=%d kvsname=kvs_1 value=%s\n", kind,
                     refused ? -1 : 0, s->put);
    assert_int_equal(write(s->fd, text, (size_t)n), n);
}

static void *serve(void *user)
{
    server *s = user;
    char line[400];
    for (size_t used = 0;;) {
        if (read(s->fd, line + used, 1) != 1) return NULL;
        if (line[used++] != '\n') continue;
        line[used] = '\0';
        answer(s, line);
        used = 0;
    }
}

static ls_status share(server *s, bool first, bool leave, char text[LS__PMI_VALUE_MAX])
{
    int pair[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    s->fd = pair[1];
    s->log[0] = '\0';
    assert_int_equal(pthread_create(&thread, NULL, serve, s), 0);
    ls_status status = ls__pmi_share(pair[0], first, 5000, text);
    if (leave) ls__pmi_leave(pair[0]);
    close(pair[0]);
    pthread_join(thread, NULL);
    close(pair[1]);
    return status;
}

static void pmi_hands_a_text_on(void **state)
{
    (void)state;
    server s = { .refuses = NULL };
    char text[LS__PMI_VALUE_MAX] = "a/1/b", other[LS__PMI_VALUE_MAX] = "";
    assert_ok(share(&s, true, true, text));
    assert_string_equal(s.put, "a/1/b");
    assert_string_equal(s.log, "init get_my_kvsname put barrier_in get finalize ");
    assert_ok(share(&s, false, false, other));
    assert_string_equal(other, "a/1/b");
    assert_string_equal(s.log, "init get_my_kvsname barrier_in get ");
}

static void pmi_may_refuse(void **state)
{
    (void)state;
    char text[LS__PMI_VALUE_MAX] = "a/1/b";
    server s = { .refuses = "get" };
    assert_fails(share(&s, true, false, text), LS_ERR_DATA, "rc=-1");
    s = (server) { .refuses = NULL };
    memset(s.put, 'x', LS__PMI_VALUE_MAX);
    assert_fails(share(&s, false, false, text), LS_ERR_DATA, "no value");
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_fails(ls__pmi_share(pair[0], false, 50, text), LS_ERR_TIMEOUT, "does not answer");
    close(pair[1]);
    assert_fails(ls__pmi_share(pair[0], false, 50, text), LS_ERR_PEER, "process manager");
    ls__pmi_leave(pair[0]); /* nothing is there any more: no signal, no wait */
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_comes_back),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(pmi_hands_a_text_on),
        cmocka_unit_test(pmi_may_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
