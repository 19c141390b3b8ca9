/* The store over each of its transports, with ranks as threads. */
#include "testing.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "world/store_client.h"
#include "world/store_server.h"
#include "world/watcher.h"

enum { SIZE = 3 };
typedef enum transport { DIRECT, PAIR, TCP } transport;

static const char secret[] = "a secret";

typedef struct fixture {
    transport transport;
    ls__core *core;
    ls__server *server;
    pthread_t thread;
    int quit[2], port;
    ls__store *stores[SIZE];
    ls__watcher *watchers[SIZE];
    pthread_mutex_t lock;
    int nclosed, ngoodbyes; /* locked */
} fixture;

static void on_frame(void *user, int rank, const ls__frame *frame)
{
    fixture *f = user;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    f->ngoodbyes += frame->type == LS__FRAME_GOODBYE;
    pthread_mutex_unlock(&f->lock);
}

static void on_closed(void *user, int rank)
{
    fixture *f = user;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    f->nclosed++;
    pthread_mutex_unlock(&f->lock);
}

static void *serve(void *user)
{
    fixture *f = user;
    for (;;) {
        struct pollfd fds[2] = { { .fd = f->quit[0], .events = POLLIN },
                                 { .fd = ls__server_fd(f->server), .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[0].revents) return NULL;
        assert_ok(ls__server_serve(f->server));
    }
}

static const ls__greeting greeting = { .job = "job 7", .tcp = true, .secret = secret };

static void connect_rank(fixture *f, int rank)
{
    int fd;
    if (f->transport == DIRECT) {
        assert_ok(ls__store_create_direct(f->core, rank, &f->stores[rank]));
        return;
    }
    if (f->transport == TCP) {
        ls__address address = { .host = "127.0.0.1", .port = f->port };
        ls__welcome welcome;
        assert_ok(ls__server_join(&address, rank, SIZE, &greeting, 5000, &welcome));
        fd = welcome.fd;
    } else {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_ok(ls__server_add(f->server, pair[0], rank));
        fd = pair[1];
    }
    assert_ok(ls__store_create_socket(fd, &f->stores[rank]));
    assert_ok(ls__watcher_start(
        &(ls__watcher_options) { .store = f->stores[rank], .peer_fd = -1, .survives = true },
        &f->watchers[rank]));
}

static void set_up(fixture *f, transport over)
{
    *f = (fixture) { .transport = over };
    pthread_mutex_init(&f->lock, NULL);
    if (over == DIRECT) {
        assert_ok(ls__core_create(&f->core));
    } else {
        ls__server_hooks hooks = { .user = f, .frame = on_frame, .closed = on_closed };
        assert_ok(ls__server_create(SIZE, &hooks, &f->server));
        int fd;
        if (over == TCP) {
            assert_ok(ls__listen_tcp("127.0.0.1", &f->port, &fd));
            assert_ok(ls__server_listen(f->server, fd, &greeting));
        }
        assert_int_equal(pipe(f->quit), 0);
    }
    if (over == PAIR) /* before the server's thread runs: adding is its thread's business */
        for (int r = 0; r < SIZE; r++) connect_rank(f, r);
    if (f->server) assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    if (over != PAIR)
        for (int r = 0; r < SIZE; r++) connect_rank(f, r);
}

static void stop_server(fixture *f)
{
    if (!f->server) return;
    assert_int_equal(write(f->quit[1], "", 1), 1);
    pthread_join(f->thread, NULL);
    ls__server_destroy(f->server);
    f->server = NULL;
}

static void tear_down(fixture *f)
{
    for (int r = 0; r < SIZE; r++) {
        ls__watcher_stop(f->watchers[r]);
        ls__store_destroy(f->stores[r]);
    }
    stop_server(f);
    if (f->transport != DIRECT) {
        close(f->quit[0]);
        close(f->quit[1]);
    }
    ls__core_destroy(f->core);
    pthread_mutex_destroy(&f->lock);
}

typedef struct rank_call {
    ls__store *store;
    int rank;
    double after; /* seconds of sleep before */
    ls_status status;
    char text[512];
    char *value;
    size_t nbytes;
} rank_call;

static void *run_get(void *user)
{
    rank_call *c = user;
    c->status = ls__store_get(c->store, "late", 10000, &c->value, &c->nbytes);
    snprintf(c->text, sizeof c->text, "%s", c->status == LS_OK ? "" : ls_error_text());
    return NULL;
}

static void *run_barrier(void *user)
{
    rank_call *c = user;
    ls__sleep_ms((int)(c->after * 1000));
    c->status = ls__store_barrier(c->store, "meet", SIZE, 300);
    snprintf(c->text, sizeof c->text, "%s", c->status == LS_OK ? "" : ls_error_text());
    return NULL;
}

static void check_values(fixture *f)
{
    char *value;
    size_t nbytes;
    assert_ok(ls__store_set(f->stores[0], "a", "one\0two", 7));
    assert_ok(ls__store_get(f->stores[1], "a", 1000, &value, &nbytes));
    assert_int_equal(nbytes, 7);
    assert_memory_equal(value, "one\0two", 8); /* NUL behind it */
    ls__free(value);
    assert_ok(ls__store_set(f->stores[2], "a", "", 0));
    assert_ok(ls__store_get(f->stores[0], "a", 1000, &value, &nbytes));
    assert_int_equal(nbytes, 0);
    ls__free(value);

    char *large = ls__alloc(LS__VALUE_MAX + 1, 1);
    assert_non_null(large);
    memset(large, 'x', LS__VALUE_MAX);
    assert_ok(ls__store_set(f->stores[0], "large", large, LS__VALUE_MAX));
    assert_ok(ls__store_get(f->stores[2], "large", 5000, &value, &nbytes));
    assert_int_equal(nbytes, LS__VALUE_MAX);
    assert_memory_equal(value, large, LS__VALUE_MAX);
    ls__free(value);
    assert_fails(ls__store_set(f->stores[0], "large", large, LS__VALUE_MAX + 1), LS_ERR_ARG,
                 "more than");
    ls__free(large);

    int64_t sum;
    assert_ok(ls__store_add(f->stores[0], "n", 5, &sum));
    assert_ok(ls__store_add(f->stores[1], "n", -7, &sum));
    assert_int_equal(sum, -2);
    assert_fails(ls__store_set(f->stores[1], "n", "x", 1), LS_ERR_ARG, "is a counter");
    assert_fails(ls__store_add(f->stores[1], "a", 1, &sum), LS_ERR_ARG, "is a value");
    assert_fails(ls__store_set(f->stores[1], "", "x", 1), LS_ERR_ARG, "1 to 255");

    assert_ok(ls__store_delete(f->stores[2], "a"));
    assert_ok(ls__store_delete(f->stores[2], "a")); /* of nothing */
    assert_fails(ls__store_get(f->stores[1], "a", 10, &value, &nbytes), LS_ERR_TIMEOUT, "a");
    assert_fails(ls__store_delete(f->stores[2], "n"), LS_ERR_ARG, "is a counter");
}

static void check_waiting(fixture *f)
{
    pthread_t threads[4];
    rank_call calls[4];
    char *value;
    size_t nbytes;
    for (int i = 0; i < 4; i++) { /* two of rank 0: a wait holds up nobody else */
        calls[i] = (rank_call) { .store = f->stores[i % SIZE] };
        pthread_create(&threads[i], NULL, run_get, &calls[i]);
    }
    ls__sleep_ms(20);
    assert_ok(ls__store_set(f->stores[0], "other", "y", 1));
    assert_ok(ls__store_set(f->stores[0], "late", "now", 3));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(calls[i].status, LS_OK);
        assert_string_equal(calls[i].value, "now");
        ls__free(calls[i].value);
    }
    double begin = ls__now();
    assert_fails(ls__store_get(f->stores[1], "never", 50, &value, &nbytes), LS_ERR_TIMEOUT,
                 "nobody has set \"never\"");
    assert_null(value);
    assert_true(ls__now() - begin < 2);
}

static void check_barriers(fixture *f)
{
    pthread_t threads[SIZE];
    rank_call calls[SIZE];
    for (int r = 0; r < SIZE; r++) {
        calls[r] = (rank_call) { .store = f->stores[r], .after = 0.02 * r };
        pthread_create(&threads[r], NULL, run_barrier, &calls[r]);
    }
    for (int r = 0; r < SIZE; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(calls[r].status, LS_OK);
    }
    assert_fails(ls__store_barrier(f->stores[1], "meet", SIZE, 100), LS_ERR_ARG, "comes twice");
    assert_fails(ls__store_barrier(f->stores[1], "short", SIZE, 50), LS_ERR_TIMEOUT,
                 "1 of 3 ranks came; ranks 0 and 2 did not");
    /* who comes too late is told as well */
    assert_fails(ls__store_barrier(f->stores[2], "short", SIZE, 50), LS_ERR_TIMEOUT,
                 "rank 0 did not");
    assert_fails(ls__store_barrier(f->stores[0], "short", 2, 50), LS_ERR_MISMATCH, "waits for 2");
    assert_ok(ls__store_barrier(f->stores[0], "alone", 1, 50));
}

static void every_transport(void **state)
{
    (void)state;
    for (transport t = DIRECT; t <= TCP; t++) {
        fixture f;
        set_up(&f, t);
        check_values(&f);
        check_waiting(&f);
        check_barriers(&f);
        tear_down(&f);
    }
}

static void control_frames_and_ends_reach_the_hooks(void **state)
{
    (void)state;
    for (transport t = PAIR; t <= TCP; t++) {
        fixture f;
        set_up(&f, t);
        for (int r = 0; r < SIZE; r++)
            assert_ok(ls__store_send(f.stores[r], &(ls__frame) { .type = LS__FRAME_GOODBYE }));
        for (int r = 0; r < SIZE; r++) {
            ls__watcher_stop(f.watchers[r]);
            ls__store_destroy(f.stores[r]);
            f.stores[r] = NULL;
            f.watchers[r] = NULL;
        }
        double deadline = ls__now() + 5;
        bool done = false;
        while (!done && ls__now() < deadline) {
            pthread_mutex_lock(&f.lock);
            done = f.nclosed == SIZE && f.ngoodbyes == SIZE;
            pthread_mutex_unlock(&f.lock);
            ls__sleep_ms(1);
        }
        assert_true(done);
        tear_down(&f);
    }
}

/* The server goes: what waits fails at once, and so does what comes later. */
static void a_lost_server_fails_all_requests(void **state)
{
    (void)state;
    for (transport t = PAIR; t <= TCP; t++) {
        fixture f;
        set_up(&f, t);
        pthread_t thread;
        rank_call call = { .store = f.stores[0] };
        pthread_create(&thread, NULL, run_get, &call);
        ls__sleep_ms(20);
        stop_server(&f);
        pthread_join(thread, NULL);
        assert_int_equal(call.status, LS_ERR_PEER);
        assert_true(ls__watcher_lost(f.watchers[0]));
        assert_fails(ls__store_set(f.stores[0], "x", "y", 1), LS_ERR_PEER, "");
        tear_down(&f);
    }
}

static void strangers_are_refused(void **state)
{
    (void)state;
    fixture f;
    set_up(&f, TCP);
    ls__address address = { .host = "127.0.0.1", .port = f.port };
    ls__welcome welcome;
    ls__greeting bad = greeting;
    bad.secret = "a sacred";
    assert_fails(ls__server_join(&address, 0, SIZE, &bad, 5000, &welcome), LS_ERR_CONFIG, "secret");
    bad.secret = NULL;
    assert_fails(ls__server_join(&address, 0, SIZE, &bad, 5000, &welcome), LS_ERR_CONFIG, "secret");
    bad = greeting;
    bad.job = "job 8";
    assert_fails(ls__server_join(&address, 0, SIZE, &bad, 100, &welcome), LS_ERR_PEER,
                 "this is job job 7, not job 8");
    assert_fails(ls__server_join(&address, 1, SIZE, &greeting, 5000, &welcome), LS_ERR_CONFIG,
                 "rank 1 is taken already");
    assert_fails(ls__server_join(&address, 1, SIZE + 1, &greeting, 5000, &welcome), LS_ERR_CONFIG,
                 "there are 4 ranks, others that there are 3");
    assert_fails(ls__server_join(&address, SIZE, SIZE, &greeting, 5000, &welcome), LS_ERR_CONFIG,
                 "rank 3 is not in [0, 3)");
    address.port = 1;
    assert_fails(ls__server_join(&address, 0, SIZE, &greeting, 100, &welcome), LS_ERR_TIMEOUT,
                 "nobody answered");
    /* garbage instead of hello, and hello never: neither disturbs the others */
    int raw[100];
    for (int i = 0; i < 100; i++) {
        raw[i] = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_storage to;
        socklen_t size = sizeof to;
        assert_int_equal(getpeername(ls__store_fd(f.stores[0]), (struct sockaddr *)&to, &size), 0);
        assert_int_equal(connect(raw[i], (struct sockaddr *)&to, size), 0);
        if (i % 2) assert_int_equal(send(raw[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    }
    check_values(&f);
    for (int i = 0; i < 100; i++) close(raw[i]);
    tear_down(&f);
}

static void frames_know_their_limits(void **state)
{
    (void)state;
    char data[64] = { 0 };
    ls__frame frame = { .type = LS__FRAME_SET, .key = "k", .key_nbytes = 1 };
    size_t used;
    ls__frame_write(&frame, data);
    assert_ok(ls__frame_parse(data, 20, &frame, &used)); /* not whole yet */
    assert_int_equal(used, 0);
    assert_ok(ls__frame_parse(data, 21, &frame, &used));
    assert_int_equal(used, 21);
    data[4] = 99;
    assert_fails(ls__frame_parse(data, 21, &frame, &used), LS_ERR_DATA, "unknown type 99");
    data[4] = LS__FRAME_SET;
    data[5] = 99;
    assert_fails(ls__frame_parse(data, 21, &frame, &used), LS_ERR_DATA, "unknown status 99");
    data[5] = 0;
    data[6] = 2; /* the key would go beyond the frame */
    assert_fails(ls__frame_parse(data, 21, &frame, &used), LS_ERR_DATA, "key of 2 bytes");
    data[6] = 1;
    data[3] = 0x7f; /* two gigabytes */
    assert_fails(ls__frame_parse(data, 21, &frame, &used), LS_ERR_DATA, "is not in");
    data[3] = 0;
    data[0] = 3; /* smaller than a header */
    assert_fails(ls__frame_parse(data, 21, &frame, &used), LS_ERR_DATA, "is not in");
}

static void missing_ranks_are_named(void **state)
{
    (void)state;
    uint8_t came[40] = { 0 };
    char text[200];
    came[0] = came[2] = 1;
    ls__name_missing(came, 2, text, sizeof text);
    assert_string_equal(text, "1");
    ls__name_missing(came, 5, text, sizeof text);
    assert_string_equal(text, "1, 3 and 4");
    ls__name_missing(came, 40, text, sizeof text);
    assert_non_null(strstr(text, "and 22 more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transport),
        cmocka_unit_test(control_frames_and_ends_reach_the_hooks),
        cmocka_unit_test(a_lost_server_fails_all_requests),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(frames_know_their_limits),
        cmocka_unit_test(missing_ranks_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
