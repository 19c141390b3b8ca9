/* The lock of a run's folder. The kernel's lock (flock) is the truth: it goes with the process that
 * held it, whatever killed that, so a lock is never stale. The file's content says who holds it,
 * for the message; only on file systems without locks does the content decide. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "record/record_internal.h"

typedef struct holder {
    long long pid;
    unsigned long long ticks; /* when it began: tells it from a later process of the same pid */
    char host[HOST_NAME_MAX + 1], boot_id[64], since[32];
} holder;

/* --- who --- */

/* Field 22 of /proc/PID/stat; 0 = no such process. The name before it may hold anything. */
static unsigned long long start_ticks(long long pid)
{
    char path[64], *text;
    size_t n;
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    if (ls__file_read(path, 4096, &text, &n) != LS_OK) return 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) ticks = strtoull(at, NULL, 10);
    ls__free(text);
    return ticks;
}

static void this_process(holder *h)
{
    char *text;
    size_t n;
    *h = (holder) { .pid = getpid() };
    h->ticks = start_ticks(h->pid);
    if (gethostname(h->host, sizeof h->host - 1) != 0) snprintf(h->host, sizeof h->host, "?");
    ls__wall_text(ls__wall_time(), h->since);
    if (ls__file_read("/proc/sys/kernel/random/boot_id", 256, &text, &n) != LS_OK) return;
    snprintf(h->boot_id, sizeof h->boot_id, "%.*s", (int)strcspn(text, "\n"), text);
    ls__free(text);
}

static void copy_member(const json_t *object, const char *key, char *out, size_t nbytes)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, nbytes, "%s", text ? text : "");
}

/* false = the file says nothing readable. */
static bool read_holder(int fd, holder *h)
{
    char text[1024];
    ssize_t n = pread(fd, text, sizeof text, 0);
    json_t *object = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
    *h = (holder) { .pid = json_integer_value(json_object_get(object, "pid")) };
    h->ticks = (unsigned long long)json_integer_value(json_object_get(object, "ticks"));
    copy_member(object, "host", h->host, sizeof h->host);
    copy_member(object, "boot_id", h->boot_id, sizeof h->boot_id);
    copy_member(object, "since", h->since, sizeof h->since);
    json_decref(object);
    return h->pid > 0 && h->host[0];
}

static ls_status write_holder(int fd, const char *path, const holder *h)
{
    char text[1024];
    json_t *object =
        json_pack("{s:I,s:I,s:s,s:s,s:s}", "pid", (json_int_t)h->pid, "ticks", (json_int_t)h->ticks,
                  "host", h->host, "boot_id", h->boot_id, "since", h->since);
    size_t n = json_dumpb(object, text, sizeof text - 1, JSON_COMPACT);
    json_decref(object);
    if (n == 0 || n >= sizeof text)
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory: could not say who holds it", path);
    text[n] = '\n';
    if (ftruncate(fd, 0) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot write", path);
    return ls__file_pwrite(&ls__fs_posix, fd, path, text, n + 1, 0);
}

/* --- the lock --- */

static ls_status taken(const char *what, const holder *h, bool known)
{
    if (!known)
        return ls_fail(LS_ERR_CONFIG,
                       "run \"%s\" is being written by another process; wait for it, or choose "
                       "another --name",
                       what);
    return ls_fail(LS_ERR_CONFIG,
                   "run \"%s\" is being written by process %lld on host %s since %s; wait for it, "
                   "or choose another --name",
                   what, h->pid, h->host, h->since);
}

/* Without locks: the process may still live if this boot of this machine has it, and always if it
 * is on a machine that we cannot look at. */
static ls_status judge(const char *path, const char *what, const holder *old, const holder *us)
{
    if (strcmp(old->host, us->host) != 0)
        return ls_fail(LS_ERR_CONFIG,
                       "run \"%s\" was last written by process %lld on host %s, and this file "
                       "system has no locks; if that process has ended, remove %s",
                       what, old->pid, old->host, path);
    bool same_boot = strcmp(old->boot_id, us->boot_id) == 0;
    bool lives = same_boot && old->ticks != 0 && start_ticks(old->pid) == old->ticks;
    return lives ? taken(what, old, true) : LS_OK;
}

/* The lock is ours, so whoever is named has ended; unless locks do not reach its machine. */
static void mention_leftover(const char *path, const holder *old, const holder *us)
{
    if (strcmp(old->host, us->host) != 0)
        ls__log(LS__LOG_WARN, "%s was left by process %lld on host %s; make sure that it has ended",
                path, old->pid, old->host);
    else
        ls__log(LS__LOG_DEBUG, "%s was left by process %lld, which has ended", path, old->pid);
}

static ls_status take(int fd, const char *path, const char *what, double patience)
{
    holder us, old;
    int result;
    double until = ls__now() + patience;
    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0) {
        if (errno != EINTR && (errno != EWOULDBLOCK || ls__now() >= until)) break;
        ls__sleep_ms(10);
    }
    bool has_locks = result == 0 || errno == EWOULDBLOCK;
    int error = errno;
    this_process(&us);
    bool known = read_holder(fd, &old);
    if (result != 0 && has_locks) return taken(what, &old, known);
    if (!has_locks && error != ENOLCK && error != ENOSYS && error != EOPNOTSUPP) {
        errno = error;
        return ls__fail_errno(LS_ERR_IO, "%s: cannot lock", path);
    }
    if (!has_locks && known) LS_TRY(judge(path, what, &old, &us));
    if (has_locks && known) mention_leftover(path, &old, &us);
    return write_holder(fd, path, &us);
}

ls_status ls__run_lock(const char *path, const char *what, double patience, int *fd)
{
    do *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot write to the run's folder", path);
    ls_status status = take(*fd, path, what, patience);
    if (status == LS_OK) return LS_OK;
    close(*fd);
    *fd = -1;
    return status;
}

/* The file stays: removing it would let two processes each lock a file of that name. */
void ls__run_unlock(int fd)
{
    if (fd < 0) return;
    if (ftruncate(fd, 0) != 0)
        ls__log(LS__LOG_DEBUG, "the run's lock still names this process: %s", strerror(errno));
    close(fd);
}
