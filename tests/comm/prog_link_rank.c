/* One rank of a link: prog_link_rank ENGINE FOLDER ROLE[,ROLE] RANK SIZE [ROOT]. The store is a folder of
 * files. Four ranks are two nodes, fewer have each their own. Under mpirun RANK and SIZE are "-". Says "ROLE ok" for each role that went as it must. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "comm/link.h"

enum { MAX_RANKS = 8, MANY = 300, MIB = 1 << 20 };

static const char *engine, *folder, *role;
static int rank, size;
static bool tampers; /* with the tokens that it gets */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail_at(__LINE__, #condition);                                           \
    } while (0)

static void fail_at(int line, const char *what)
{
    printf("rank %d, %s, line %d: %s: %s\n", rank, role, line, what, ls_error_text());
    fflush(stdout);
    _exit(1);
}

/* --- the store --- */

static ls_status set(void *user, const char *key, const void *value, size_t nbytes)
{
    char path[LS_PATH_MAX];
    (void)user;
    LS_TRY(ls__path_join(path, folder, key));
    return ls__file_write_atomic(&ls__fs_unsynced, path, value, nbytes);
}

static ls_status get(void *user, const char *key, int timeout_ms, char **value, size_t *nbytes)
{
    char path[LS_PATH_MAX];
    (void)user;
    LS_TRY(ls__path_join(path, folder, key));
    for (int waited = 0; !ls__path_exists(path); waited++, ls__sleep_ms(1))
        if (timeout_ms != LS_NONE && waited >= timeout_ms)
            return ls_fail(LS_ERR_TIMEOUT, "nobody told %s within %d ms", key, timeout_ms);
    LS_TRY(ls__file_read(path, MIB, value, nbytes));
    if (tampers) (*value)[0] = (char)~(*value)[0];
    return LS_OK;
}

static void flag(const char *name)
{
    CHECK(set(NULL, name, "1", 1) == LS_OK);
}

static void await_flag(const char *name)
{
    char *value;
    size_t nbytes;
    CHECK(get(NULL, name, 20000, &value, &nbytes) == LS_OK);
    ls__free(value);
}

/* --- messages --- */

static int nodes[MAX_RANKS];

static ls_status open_link(const char *root, int timeout_ms, ls__link **link)
{
    ls__link_store store = { NULL, set, get };
    ls__link_options o = { rank, size, nodes, &store, root, timeout_ms };
    return ls__link_open(engine, &o, link);
}

static ls_status wait_within(ls__link *link, ls__transfer *t, int ms)
{
    ls__patience patience = { ls__now_ns() + INT64_C(1000000) * ms, NULL, NULL };
    return link->wait(link, t, &patience);
}

static void start(ls__link *link, ls__transfer *t, int peer, ls__channel channel, bool sends,
                  void *data, size_t nbytes)
{
    *t = (ls__transfer) { peer, channel, sends, data, nbytes, NULL, false };
    CHECK(link->start(link, t) == LS_OK);
}

/* By words, the rest by bytes: hundreds of megabytes are filled. */
static void fill(unsigned char *data, size_t nbytes, unsigned seed)
{
    uint64_t word = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    size_t i = 0;
    for (; i + 8 <= nbytes; i += 8, word += UINT64_C(0x9e3779b97f4a7c15))
        memcpy(data + i, &word, sizeof word);
    for (; i < nbytes; i++) data[i] = (unsigned char)(seed + i);
}

/* --- roles --- */

/* Many messages of two channels both ways at once, all started before any is waited for; receives
 * begin on one channel after the other, sends alternate. */
static void do_order(ls__link *link)
{
    static ls__transfer sends[MAX_RANKS][2][MANY], takes[MAX_RANKS][2][MANY];
    static int out[MAX_RANKS][2][MANY], in[MAX_RANKS][2][MANY];
    const ls__channel channels[2] = { LS__CHANNEL_FRAME, LS__CHANNEL_MAIL };
    for (int p = 0; p < size; p++)
        for (int c = 0; c < 2 && nodes[p] != nodes[rank]; c++)
            for (int i = 0; i < MANY; i++)
                start(link, &takes[p][c][i], p, channels[c], false, &in[p][c][i], sizeof(int));
    for (int p = 0; p < size; p++)
        for (int i = 0; i < MANY && nodes[p] != nodes[rank]; i++)
            for (int c = 1; c >= 0; c--) {
                out[p][c][i] = ((rank * MAX_RANKS + p) * 2 + c) * MANY + i;
                start(link, &sends[p][c][i], p, channels[c], true, &out[p][c][i], sizeof(int));
            }
    for (int p = 0; p < size; p++)
        for (int c = 0; c < 2 && nodes[p] != nodes[rank]; c++)
            for (int i = MANY - 1; i >= 0; i--) {
                CHECK(wait_within(link, &takes[p][c][i], 20000) == LS_OK);
                CHECK(wait_within(link, &sends[p][c][i], 20000) == LS_OK);
                CHECK(in[p][c][i] == ((p * MAX_RANKS + rank) * 2 + c) * MANY + i);
            }
}

static void exchange(ls__link *link, size_t nbytes, int later_ms)
{
    unsigned char *out = ls__alloc(nbytes + 1, 1), *in[MAX_RANKS];
    unsigned char *expected = ls__alloc(nbytes + 1, 1);
    ls__transfer sends[MAX_RANKS], takes[MAX_RANKS];
    fill(out, nbytes, (unsigned)rank);
    for (int p = 0; p < size; p++) {
        if (nodes[p] == nodes[rank]) continue;
        in[p] = ls__alloc(nbytes + 1, 1);
        start(link, &sends[p], p, LS__CHANNEL_SUM, true, out, nbytes);
        ls__sleep_ms(later_ms);
        start(link, &takes[p], p, LS__CHANNEL_SUM, false, in[p], nbytes);
    }
    for (int p = 0; p < size; p++) {
        if (nodes[p] == nodes[rank]) continue;
        CHECK(wait_within(link, &takes[p], 20000) == LS_OK);
        CHECK(wait_within(link, &sends[p], 20000) == LS_OK);
        fill(expected, nbytes, (unsigned)p);
        CHECK(memcmp(in[p], expected, nbytes + 1) == 0);
        ls__free(in[p]);
    }
    ls__free(out);
    ls__free(expected);
}

static void do_sizes(ls__link *link)
{
    exchange(link, 0, 0);
    exchange(link, 1, 10 * rank); /* who is first is not always the same */
    exchange(link, MIB, 0);
    exchange(link, (size_t)(strcmp(engine, "mpi") != 0 ? 64 : 33) * MIB + 5, 0); /* in pieces */
}

/* A receive without an answer ends at its deadline. */
static void do_timeout(ls__link *link)
{
    char data[64];
    ls__transfer t;
    if (rank == 0) {
        start(link, &t, 1, LS__CHANNEL_FRAME, false, data, sizeof data);
        double before = ls__now();
        CHECK(wait_within(link, &t, 300) == LS_ERR_TIMEOUT);
        double took = ls__now() - before;
        CHECK(strstr(ls_error_text(), "in time"));
        CHECK(took > 0.29 && took < 2);
        flag("timeout");
    } else {
        await_flag("timeout");
    }
    link->abort(link);
}

static bool past(void *user)
{
    return ls__now() > *(double *)user;
}

/* The job's end ends a wait. */
static void do_ended(ls__link *link)
{
    char data[64];
    ls__transfer t;
    double end = ls__now() + 0.2;
    ls__patience patience = { INT64_MAX, past, &end };
    if (rank != 0) {
        await_flag("ended");
        link->abort(link);
        return;
    }
    start(link, &t, 1, LS__CHANNEL_FRAME, false, data, sizeof data);
    CHECK(link->wait(link, &t, &patience) == LS_ERR_PEER);
    CHECK(strstr(ls_error_text(), "job is being ended"));
    CHECK(ls__now() - end < 2);
    flag("ended");
    link->abort(link);
}

static void lose_peer(ls__link *link, bool sends, size_t nbytes)
{
    char *data = ls__alloc(nbytes, 1);
    ls__transfer t, next;
    start(link, &t, 1, LS__CHANNEL_SUM, sends, data, nbytes);
    flag("posted");
    double before = ls__now();
    CHECK(wait_within(link, &t, 15000) == LS_ERR_PEER);
    CHECK(ls__now() - before < 5);
    next = (ls__transfer) { 1, LS__CHANNEL_FRAME, true, data, 1, NULL, false };
    CHECK(link->start(link, &next) == LS_ERR_PEER);
    link->abort(link);
    ls__free(data);
}

/* Rank 1 dies, while rank 0 waits to receive, to send. */
static void do_killed(ls__link *link)
{
    if (rank == 0) {
        lose_peer(link, false, 100);
    } else {
        await_flag("posted");
        ls__sleep_ms(100);
        raise(SIGKILL);
    }
}

static void do_killedsend(ls__link *link)
{
    if (rank == 0) {
        lose_peer(link, true, MIB);
    } else {
        await_flag("posted");
        ls__sleep_ms(100);
        raise(SIGKILL);
    }
}

/* Rank 1 dies in the middle of a message: rank 0 stands still meanwhile, so that it is not whole. */
static void do_killedwithin(ls__link *link)
{
    const size_t nbytes = (size_t)64 * MIB;
    char *data = ls__alloc(nbytes, 1);
    ls__transfer t;
    if (rank == 1) {
        await_flag("posted");
        ls__sleep_ms(100);
        start(link, &t, 0, LS__CHANNEL_SUM, true, data, nbytes);
        CHECK(wait_within(link, &t, 300) == LS_ERR_TIMEOUT);
        flag("dead");
        raise(SIGKILL);
    }
    pid_t self = getpid();
    if (fork() == 0) {
        while (access(folder, F_OK) == 0) {
            char path[LS_PATH_MAX];
            if (ls__path_join(path, folder, "dead") == LS_OK && ls__path_exists(path)) break;
            ls__sleep_ms(1);
        }
        ls__sleep_ms(50);
        kill(self, SIGCONT);
        _exit(0);
    }
    start(link, &t, 1, LS__CHANNEL_SUM, false, data, nbytes);
    flag("posted");
    raise(SIGSTOP);
    double before = ls__now();
    CHECK(wait_within(link, &t, 15000) == LS_ERR_PEER);
    CHECK(ls__now() - before < 5);
    link->abort(link);
    ls__free(data);
}

static void do_abort(ls__link *link)
{
    char data[100];
    ls__transfer t;
    if (rank == 0) {
        lose_peer(link, false, 100);
        flag("told");
        return;
    }
    await_flag("posted");
    start(link, &t, 0, LS__CHANNEL_MAIL, false, data, sizeof data);
    link->abort(link);
    await_flag("told"); /* by the abort, not by the end of this process */
}

/* Buffers are free after destroy, whatever was on its way. */
static void do_outstanding(ls__link *link)
{
    ls__transfer t[3];
    char *data = ls__alloc(3, MIB);
    start(link, &t[0], 1 - rank, LS__CHANNEL_SUM, false, data, MIB);
    start(link, &t[1], 1 - rank, LS__CHANNEL_MAIL, rank == 0, data + MIB, MIB);
    start(link, &t[2], 1 - rank, LS__CHANNEL_FRAME, true, data + 2 * MIB, MIB);
    flag(rank == 0 ? "started0" : "started1"); /* a peer that is gone would be told of */
    await_flag(rank == 0 ? "started1" : "started0");
    if (rank == 0) ls__sleep_ms(50);
    link->destroy(link);
    ls__free(data);
}

/* Who has sent may go, even if the other one looks later. */
static void do_late(ls__link *link)
{
    size_t nbytes = 8 * MIB;
    unsigned char *data = ls__alloc(nbytes, 1), *expected = ls__alloc(nbytes, 1);
    ls__transfer t;
    fill(expected, nbytes, 5);
    if (rank == 0) memcpy(data, expected, nbytes);
    start(link, &t, 1 - rank, LS__CHANNEL_SPREAD, rank == 0, data, nbytes);
    if (rank == 1) ls__sleep_ms(300);
    CHECK(wait_within(link, &t, 10000) == LS_OK);
    CHECK(memcmp(data, expected, nbytes) == 0);
    ls__free(data);
    ls__free(expected);
}

/* Ranks of one node have no connection: counts this process's sockets. */
static void do_sockets(ls__link *link)
{
    int sockets = 0, peers = 0;
    struct dirent *entry;
    DIR *fds = opendir("/proc/self/fd");
    CHECK(fds);
    exchange(link, 10, 0);
    while ((entry = readdir(fds))) {
        struct stat s;
        if (entry->d_name[0] != '.' && fstat(atoi(entry->d_name), &s) == 0 && S_ISSOCK(s.st_mode))
            sockets++;
    }
    closedir(fds);
    for (int p = 0; p < size; p++) peers += nodes[p] != nodes[rank];
    CHECK(sockets == peers);
    exchange(link, 10, 0); /* nobody has closed its own yet */
}

static void do_nothing(ls__link *link)
{
    exchange(link, 10, 0);
}

/* While a link is open, too. */
static void do_share(ls__link *link)
{
    char text[64] = "";
    (void)link;
    if (rank == 0) strcpy(text, "rank 0's words");
    CHECK(ls__link_share(engine, rank, size, 20000, text, sizeof text) == LS_OK);
    CHECK(strcmp(text, "rank 0's words") == 0);
}

static const struct {
    const char *name;
    void (*run)(ls__link *link);
} roles[] = {
    { "share", do_share },
    { "order", do_order },
    { "sizes", do_sizes },
    { "timeout", do_timeout },
    { "ended", do_ended },
    { "killed", do_killed },
    { "killedsend", do_killedsend },
    { "abort", do_abort },
    { "killedwithin", do_killedwithin },
    { "late", do_late },
    { "outstanding", do_outstanding },
    { "sockets", do_sockets },
    { "nothing", do_nothing },
    { "impostor", do_nothing },
};

/* A link of its own for each role; the store's folder as well, because keys are told once. */
static void play(const char *name, const char *root)
{
    static char own[LS_PATH_MAX];
    const char *base = folder;
    ls__link *link;
    role = name;
    CHECK(ls__path_join(own, base, name) == LS_OK);
    CHECK(mkdir(own, 0700) == 0 || errno == EEXIST);
    folder = own;
    tampers = !strcmp(name, "impostor") && rank == 1;
    if (open_link(root, 5000, &link) != LS_OK) {
        printf("rank %d: open: %s: %s\n", rank, ls__status_name(LS_ERR_PEER), ls_error_text());
        exit(3);
    }
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (!strcmp(name, roles[i].name)) roles[i].run(link);
    if (strcmp(name, "outstanding") != 0) link->destroy(link);
    printf("%s ok\n", name);
    fflush(stdout);
    folder = base;
}

static int from_environment(const char *open_mpi, const char *pmi)
{
    const char *text = getenv(open_mpi);
    if (!text) text = getenv(pmi);
    return text ? atoi(text) : 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) return 2;
    engine = argv[1];
    folder = argv[2];
    bool mpirun = !strcmp(argv[4], "-");
    rank = mpirun ? from_environment("OMPI_COMM_WORLD_RANK", "PMI_RANK") : atoi(argv[4]);
    size = mpirun ? from_environment("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") : atoi(argv[5]);
    if (size < 1 || size > MAX_RANKS) return 2;
    for (int p = 0; p < size; p++) nodes[p] = p;
    for (int p = 0; p < size && size == 4; p++) nodes[p] = p / 2;
    for (char *name = strtok(argv[3], ","); name; name = strtok(NULL, ","))
        play(name, argc > 6 ? argv[6] : "127.0.0.1");
    return 0;
}
