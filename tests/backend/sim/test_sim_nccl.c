/* The exchange by NCCL over a library that stands in for it (fake_nccl.c): what it is asked, in which
 * order, and what becomes of its failures. Run once more with a library of version 2.18
 * (FAKE_NCCL=old), which cannot be told of memory. */
#include "backend/sim/helper_collective.h"
#include "testing.h"

#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include "backend/cuda/vendor_cuda_nccl.h"
#include "base/clock.h"
#include "base/memory.h"

static struct {
    void (*log)(int rank, char *out, size_t size);
    void (*make_fail)(const char *what, int rank);
    void (*forget)(void);
    int (*allocated)(void);
} fake;
static bool old;

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) fail_msg("%s: %s", name, dlerror());
    return symbol;
}

/* Whoever asks for libnccl.so.2 later gets the one that is there. */
static int open_fake(void **state)
{
    (void)state;
    char path[4096];
    const char *folder = getenv("LS_BINARY_DIR"), *which = getenv("FAKE_NCCL");
    old = which && strcmp(which, "old") == 0;
    snprintf(path, sizeof path, "%s/tests/fake/%s/libnccl.so.2", folder ? folder : "..",
             old ? "nccl-old" : "nccl");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&fake.log = find(library, "fake_nccl_log");
    *(void **)&fake.make_fail = find(library, "fake_nccl_fail");
    *(void **)&fake.forget = find(library, "fake_nccl_forget");
    *(void **)&fake.allocated = find(library, "fake_nccl_allocated");
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_COMM_ID");
    setenv("HOME", "/nonexistent", 1);
    return 0;
}

static int forget(void **state)
{
    (void)state;
    fake.make_fail("", 0);
    fake.forget();
    unsetenv("NCCL_SOCKET_IFNAME");
    return 0;
}

/* Every rank's calls, all but its number alike. */
static void assert_log(int size, const char *expected)
{
    char log[8192];
    for (int r = 0; r < size; r++) {
        fake.log(r, log, sizeof log);
        assert_string_equal(log, expected);
    }
}

/* --- calls --- */

/* One communicator from its begin to its end. */
static void a_life(test_rank *t)
{
    device_rank d;
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, fake.allocated() == 0 || !old);
    cuda_span spans[] = { { d.data, d.data + 64, 8 }, { d.data + 16, d.data + 72, 4 } };
    cuda_transfer send = { 1 - t->rank, d.data, 20 }, receive = { 1 - t->rank, d.data + 64, 20 };
    RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", spans, 2));
    RANK_OK(t, ls__vendor_collective_all_gather(d.c, d.stream, "parameters", spans, 1));
    RANK_OK(t, ls__vendor_collective_exchange(d.c, d.stream, "gradients", &send, 1, &receive, 1));
    RANK_OK(t, ls__vendor_collective_exchange(d.c, d.stream, "gradients", NULL, 0, NULL, 0));
    RANK_OK(t, device_rank_wait(&d));
    device_rank_end(&d);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    char logs[2][8192], expected[2][1024];
    run_ranks(2, NULL, a_life, NULL);
    for (int r = 0; r < 2; r++) {
        fake.log(r, logs[r], sizeof logs[r]);
        snprintf(expected[r], sizeof expected[r],
                 "%sinit %d of 2 non-blocking over any\n%s"
                 "group reduce_scatter 8, reduce_scatter 4\n"
                 "group all_gather 8\n"
                 "group send %d 20, recv %d 20\n"
                 "%sfinalize\ndestroy\n",
                 r == 0 ? "unique_id over any\n" : "", r, old ? "" : "register 16384\n", 1 - r,
                 1 - r, old ? "" : "deregister\n");
        assert_string_equal(logs[r], expected[r]);
    }
    assert_int_equal(fake.allocated(), 0);
}

static void test_memory(void **state)
{
    (void)state;
    void *p;
    const char *why;
    assert_int_equal(ls__vendor_collective_allocate(4096, &p), cudaSuccess);
    assert_int_equal(fake.allocated(), old ? 0 : 1);
    ls__vendor_collective_free(p);
    assert_int_equal(fake.allocated(), 0);
    ls__vendor_collective_free(NULL);
    assert_int_equal(ls__nccl(&why)->reg == NULL, old);
    if (old) return;
    fake.make_fail("memory", 0);
    assert_int_equal(ls__vendor_collective_allocate(4096, &p), cudaErrorMemoryAllocation);
    assert_null(p);
}

/* A refusal to take memory in is no failure. */
static void unregistered(test_rank *t)
{
    device_rank d;
    if (!device_rank_begin(&d, t, -1)) return;
    cuda_span span = { d.data, d.data + 64, 8 };
    RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1));
    RANK_OK(t, device_rank_wait(&d));
    device_rank_end(&d);
}

static void test_refused_memory(void **state)
{
    (void)state;
    fake.make_fail("register", 1);
    run_ranks(2, NULL, unregistered, NULL);
    char log[8192];
    fake.log(1, log, sizeof log);
    assert_non_null(strstr(log, "destroy\n"));
    assert_null(strstr(log, "deregister"));
}

/* --- failures --- */

static void test_missing(void **state)
{
    (void)state;
    run_ranks(2, NULL, collective_missing, NULL);
    run_ranks(3, NULL, collective_missing, NULL);
    char log[8192];
    for (int r = 0; r < 2; r++) {
        fake.log(r, log, sizeof log);
        assert_non_null(strstr(log, "abort\n"));
        assert_null(strstr(log, "used after"));
        assert_null(strstr(log, "destroy"));
    }
}

static void test_given_up(void **state)
{
    (void)state;
    run_ranks(3, NULL, collective_given_up, NULL);
}

static void cannot_begin(test_rank *t)
{
    cuda_collective *c;
    const char *const *words = t->user;
    RANK_CHECK(t, cudaSetDevice(t->rank) == cudaSuccess);
    cuda_collective_options options = { .comm = t->comm, .device = t->rank, .timeout_ms = -1 };
    RANK_FAILS(t, ls__vendor_collective_create(&options, &c), LS_ERR_DEVICE, words[t->rank]);
    RANK_CHECK(t, c == NULL);
}

/* Nobody waits for a rank that could not begin. */
static void test_no_begin(void **state)
{
    (void)state;
    const char *const init[] = { "rank 1: GPU 1: exchange of addresses: unhandled system error",
                                 "GPU 1: exchange of addresses: unhandled system error" };
    const char *const id[] = { "rank 0: NCCL cannot be reached", "rank 0: NCCL cannot be reached" };
    fake.make_fail("init", 1);
    run_ranks(2, NULL, cannot_begin, (void *)(uintptr_t)init);
    fake.make_fail("unique_id", 0);
    run_ranks(2, NULL, cannot_begin, (void *)(uintptr_t)id);
}

/* of a call: at once; while the device works: when it is polled. */
static void with_errors(test_rank *t)
{
    device_rank d;
    bool at_once = *(const bool *)t->user;
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_OK(t, ls_comm_barrier(t->comm));
    if (t->rank == 0) fake.make_fail(at_once ? "group" : "", 0);
    RANK_OK(t, ls_comm_barrier(t->comm));
    cuda_span span = { d.data, d.data + 64, 8 };
    ls_status status = ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1);
    if (at_once && t->rank == 0) {
        RANK_CHECK(t, status == LS_ERR_DEVICE);
        ls__vendor_collective_abort(d.c, ls_error_text()); /* as the backend does */
        RANK_CHECK(t, strstr(ls_error_text(), "GPU 0: exchange of gradients: unhandled system "
                                              "error: a cable is loose"));
    } else {
        RANK_CHECK(t, status == LS_OK || t->rank == 1); /* it may know already */
        if (!at_once && t->rank == 0) {
            RANK_OK(t, device_rank_wait(&d));
            fake.make_fail("async", 0);
        }
        while (status == LS_OK) {
            ls__sleep_ms(1);
            status = ls__vendor_collective_check(d.c);
        }
        RANK_CHECK(t, status == LS_ERR_DEVICE);
        RANK_CHECK(t, strstr(ls_error_text(), "GPU 0: exchange of gradients: "));
        RANK_CHECK(t, strstr(ls_error_text(), "a cable is loose"));
        ls__vendor_collective_abort(d.c, "the other has");
    }
    device_rank_end(&d);
}

static void test_errors(void **state)
{
    (void)state;
    for (int at_once = 0; at_once < 2; at_once++) {
        bool when = at_once;
        fake.make_fail("", 0);
        run_ranks(2, NULL, with_errors, &when);
    }
}

/* --- who can exchange --- */

static void availability(test_rank *t)
{
    int together = *(const int *)t->user;
    int device = together ? 0 : t->rank;
    RANK_CHECK(t, ls__vendor_collective_available(t->comm, device) == !together);
}

static void test_availability(void **state)
{
    (void)state;
    for (int together = 0; together < 2; together++) run_ranks(3, NULL, availability, &together);
}

/* --- several machines --- */

/* The address and the name of an interface that others may know; false: there is none. */
static bool any_interface(char address[64], char name[64])
{
    struct ifaddrs *list;
    bool found = false;
    assert_int_equal(getifaddrs(&list), 0);
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || i->ifa_flags & IFF_LOOPBACK)
            continue;
        found = getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), address, 64, NULL, 0,
                            NI_NUMERICHOST) == 0;
        snprintf(name, 64, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* A store of all ranks. */
typedef struct shelf {
    pthread_mutex_t lock;
    int nkeys, fails;
    char keys[64][128];
} shelf;

static ls_status shelf_set(void *user, const char *key, const void *value, size_t nbytes)
{
    shelf *s = user;
    (void)value, (void)nbytes;
    pthread_mutex_lock(&s->lock);
    bool room = s->nkeys < 64;
    if (room) snprintf(s->keys[s->nkeys++], sizeof s->keys[0], "%s", key);
    pthread_mutex_unlock(&s->lock);
    return room ? LS_OK : ls_fail(LS_ERR_INTERNAL, "too many keys");
}

static ls_status shelf_get(void *user, const char *key, int timeout_ms, char **value,
                           size_t *nbytes)
{
    shelf *s = user;
    if (s->fails) return ls_fail(LS_ERR_PEER, "the store is gone");
    for (double end = ls__now() + timeout_ms * 1e-3; ls__now() < end; ls__sleep_ms(5)) {
        bool found = false;
        pthread_mutex_lock(&s->lock);
        for (int i = 0; i < s->nkeys && !found; i++) found = strcmp(s->keys[i], key) == 0;
        pthread_mutex_unlock(&s->lock);
        if (!found) continue;
        *value = ls__alloc(1, 1);
        *nbytes = 1;
        return *value ? LS_OK : LS_ERR_MEMORY;
    }
    return ls_fail(LS_ERR_TIMEOUT, "%s is not there", key);
}

/* Rank 1 comes to the first exchange, and not to the second. */
static void missing_elsewhere(test_rank *t)
{
    cuda_collective *c;
    cudaStream_t stream;
    void *data;
    shelf *s = t->user;
    RANK_CHECK(t, cudaSetDevice(t->rank) == cudaSuccess);
    RANK_CHECK(t, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    RANK_CHECK(t, ls__vendor_collective_allocate(4096, &data) == cudaSuccess);
    cuda_collective_options options = { .comm = t->comm,
                                        .device = t->rank,
                                        .most_bytes = 4096,
                                        .timeout_ms = 400,
                                        .root = "127.0.0.1",
                                        .store = { s, shelf_set, shelf_get } };
    RANK_OK(t, ls__vendor_collective_create(&options, &c));
    device_rank d = { .t = t, .c = c, .stream = stream, .data = data };
    cuda_span span = { d.data, d.data + 64, 8 };
    RANK_OK(t, ls__vendor_collective_reduce_scatter(c, stream, "gradients", &span, 1));
    RANK_OK(t, device_rank_wait(&d));
    if (t->rank == 1) {
        RANK_OK(t, ls_comm_barrier(t->comm));
        ls__vendor_collective_abort(c, "it is late");
    } else {
        ls__sleep_ms(80 * t->rank); /* the last to lose patience is not taken for the missing one */
        RANK_OK(t, ls__vendor_collective_reduce_scatter(c, stream, "gradients", &span, 1));
        RANK_FAILS(t, device_rank_wait(&d), LS_ERR_TIMEOUT,
                   s->fails ? "gradients has not ended within 0.4 s; NCCL_DEBUG=INFO tells"
                            : "rank 1 has not come to the exchange of gradients within 0.4 s");
        RANK_OK(t, ls_comm_barrier(t->comm));
    }
    device_rank_end(&d);
}

static void test_missing_elsewhere(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        shelf s = { .lock = PTHREAD_MUTEX_INITIALIZER, .fails = fails };
        run_ranks(3, NULL, missing_elsewhere, &s);
        assert_int_equal(s.nkeys, 2); /* nothing while all was well */
    }
}

static void connects(test_rank *t)
{
    cuda_collective *c;
    RANK_CHECK(t, cudaSetDevice(t->rank) == cudaSuccess);
    cuda_collective_options options = {
        .comm = t->comm, .device = t->rank, .timeout_ms = -1, .root = t->user
    };
    RANK_OK(t, ls__vendor_collective_create(&options, &c));
    ls__vendor_collective_destroy(c);
}

static void assert_interface(const char *root, const char *expected)
{
    char line[256];
    fake.forget();
    run_ranks(1, NULL, connects, (void *)(uintptr_t)root);
    snprintf(line, sizeof line,
             "unique_id over %s\ninit 0 of 1 non-blocking over %s\nfinalize\ndestroy\n", expected,
             expected);
    assert_log(1, line);
}

static void test_interface(void **state)
{
    (void)state;
    char address[64], name[64], expected[80], path[] = "/tmp/nccl-conf-XXXXXX";
    assert_interface(NULL, "any"); /* one machine */
    assert_interface("127.0.0.1", "any");
    if (!any_interface(address, name)) {
        print_message("no interface but the loopback is here\n");
        return;
    }
    snprintf(expected, sizeof expected, "=%s", name);
    assert_interface(address, expected);
    setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
    assert_interface(address, "ib0"); /* the user's */
    unsetenv("NCCL_SOCKET_IFNAME");
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=ib1\n", 39), 39);
    close(fd);
    setenv("NCCL_CONF_FILE", path, 1);
    assert_interface(address, "any"); /* NCCL reads it there */
    unsetenv("NCCL_CONF_FILE");
    unlink(path);
    assert_interface(address, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_order_of_calls, forget),
        cmocka_unit_test_teardown(collective_values, forget),
        cmocka_unit_test_teardown(test_memory, forget),
        cmocka_unit_test_teardown(test_refused_memory, forget),
        cmocka_unit_test_teardown(test_missing, forget),
        cmocka_unit_test_teardown(test_given_up, forget),
        cmocka_unit_test_teardown(test_no_begin, forget),
        cmocka_unit_test_teardown(test_errors, forget),
        cmocka_unit_test_teardown(test_availability, forget),
        cmocka_unit_test_teardown(test_missing_elsewhere, forget),
        cmocka_unit_test_teardown(test_interface, forget),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
