/* Eight ranks that print the same warning are one line, not eight. A line of a rank waits a tenth of a
 * second for others to say the same; then it is shown with all who did. The order of each rank's
 * lines stays as it was: a rank joins no line before its own last one. */
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "world/output_parts.h"

enum { WAITING_MAX = 256 }; /* lines; more are shown before their time */

static const double wait_seconds = 0.1;

typedef struct line {
    uint64_t hash;
    int which;
    double at;
    char *text;
    size_t nbytes;
    uint64_t *ranks; /* (words) a bit each */
} line;

struct ls__fold {
    int size, words, timer_fd;
    ls__fold_show *show;
    void *user;
    line lines[WAITING_MAX]; /* a ring: [first, first + count) in the order of arrival */
    int64_t first;
    int count;
    int64_t *last; /* (size) behind the newest line of each rank, counted from the beginning */
};

ls_status ls__fold_create(int size, ls__fold_show *show, void *user, ls__fold **out)
{
    *out = NULL;
    ls__fold *fold = ls__alloc(1, sizeof *fold);
    if (!fold) return LS_ERR_MEMORY;
    fold->size = size;
    fold->words = (size + 63) / 64;
    fold->show = show;
    fold->user = user;
    fold->last = ls__alloc((size_t)size, sizeof *fold->last);
    fold->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (!fold->last || fold->timer_fd < 0) {
        ls__fold_destroy(fold);
        return ls__fail_errno(LS_ERR_MEMORY, "cannot read the output of ranks");
    }
    *out = fold;
    return LS_OK;
}

static line *line_at(ls__fold *fold, int64_t number)
{
    return &fold->lines[number % WAITING_MAX];
}

static void drop_first(ls__fold *fold)
{
    line *l = line_at(fold, fold->first++);
    fold->count--;
    ls__free(l->text);
    ls__free(l->ranks);
    *l = (line) { 0 };
}

void ls__fold_destroy(ls__fold *fold)
{
    if (!fold) return;
    while (fold->count > 0) drop_first(fold);
    if (fold->timer_fd >= 0) close(fold->timer_fd);
    ls__free(fold->last);
    ls__free(fold);
}

int ls__fold_fd(const ls__fold *fold)
{
    return fold->timer_fd;
}

static bool has(const uint64_t *set, int rank)
{
    return set[rank / 64] >> (rank % 64) & 1;
}

void ls__ranks_text(const uint64_t *set, int size, const char *host, char out[LS__RANKS_TEXT])
{
    size_t begin = (size_t)snprintf(out, LS__RANKS_TEXT, host ? "[%.64s:" : "[", host ? host : "");
    size_t used = begin;
    for (int first = 0; first < size; first++) {
        if (!has(set, first)) continue;
        int last = first;
        while (last + 1 < size && has(set, last + 1)) last++;
        if (used > LS__RANKS_TEXT - 20) {
            used += (size_t)snprintf(out + used, LS__RANKS_TEXT - used, ",...");
            break;
        }
        used +=
            (size_t)snprintf(out + used, LS__RANKS_TEXT - used, last > first ? "%s%d-%d" : "%s%d",
                             used > begin ? "," : "", first, last);
        first = last;
    }
    snprintf(out + used, LS__RANKS_TEXT - used, "] ");
}

static void show_first(ls__fold *fold)
{
    const line *l = line_at(fold, fold->first);
    fold->show(fold->user, l->which, l->ranks, l->text, l->nbytes);
    drop_first(fold);
}

/* Something is due when the first line has waited long enough. */
static void set_timer(ls__fold *fold)
{
    struct itimerspec at = { 0 };
    if (fold->count > 0) {
        double due = line_at(fold, fold->first)->at + wait_seconds;
        at.it_value.tv_sec = (time_t)due;
        at.it_value.tv_nsec = (long)((due - (double)at.it_value.tv_sec) * 1e9);
    }
    timerfd_settime(fold->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

void ls__fold_flush(ls__fold *fold, bool all)
{
    uint64_t expired;
    ssize_t n = read(fold->timer_fd, &expired, sizeof expired);
    (void)n;
    double now = ls__now();
    int before = fold->count;
    while (fold->count > 0 && (all || line_at(fold, fold->first)->at + wait_seconds <= now))
        show_first(fold);
    if (before > 0) set_timer(fold);
}

/* A line that waits, says this, and may be joined by this rank; -1 = none. */
static int64_t find(ls__fold *fold, int rank, int which, uint64_t hash, const char *text,
                    size_t nbytes)
{
    int64_t from = fold->last[rank] > fold->first ? fold->last[rank] : fold->first;
    for (int64_t i = from; i < fold->first + fold->count; i++) {
        const line *l = line_at(fold, i);
        if (l->hash == hash && l->which == which && l->nbytes == nbytes &&
            memcmp(l->text, text, nbytes) == 0)
            return i;
    }
    return -1;
}

static void add_new(ls__fold *fold, int rank, int which, uint64_t hash, const char *text,
                    size_t nbytes)
{
    if (fold->count == WAITING_MAX) show_first(fold);
    line l = { .hash = hash, .which = which, .at = ls__now(), .nbytes = nbytes };
    l.text = ls__alloc(nbytes + 1, 1);
    l.ranks = ls__alloc((size_t)fold->words, sizeof *l.ranks);
    if (!l.text || !l.ranks) { /* it is in the log */
        ls__free(l.text);
        ls__free(l.ranks);
        return;
    }
    memcpy(l.text, text, nbytes);
    l.ranks[rank / 64] |= (uint64_t)1 << (rank % 64);
    *line_at(fold, fold->first + fold->count++) = l;
    fold->last[rank] = fold->first + fold->count;
    if (fold->count == 1) set_timer(fold);
}

void ls__fold_add(ls__fold *fold, int rank, int which, const char *text, size_t nbytes)
{
    uint64_t hash = XXH3_64bits(text, nbytes);
    int64_t found = find(fold, rank, which, hash, text, nbytes);
    if (found < 0) {
        add_new(fold, rank, which, hash, text, nbytes);
        return;
    }
    line_at(fold, found)->ranks[rank / 64] |= (uint64_t)1 << (rank % 64);
    fold->last[rank] = found + 1;
}
