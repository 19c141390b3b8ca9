/* The first node's return. A run that may be taken up is found by the command line and the host, is not
 * locked by a living process, and was alive a short while ago: its file is touched every few seconds,
 * and after --timeout nobody waits for it any more. Expected: a folder of some hundred runs, looked
 * through once at a start. */
#include "launch/first_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launch_state.h"
#include "launch/launcher_nodes_parts.h"

enum { FILE_MAX = 16 << 20 };

static const char file_name[] = "first-node.json", schema[] = "lockstep.first-node/1";
static const double touch_seconds = 5.0;
static const double slack_seconds = 30.0; /* of the others' noticing and of clocks */

/* --- the file --- */

static void key_of(const ls__launcher_plan *plan, char out[32])
{
    XXH64_hash_t h = 0;
    for (int i = 1; i < plan->words->nflags; i++)
        h = XXH3_64bits_withSeed(plan->words->flags[i], strlen(plan->words->flags[i]) + 1, h);
    for (char **word = plan->words->program; *word; word++)
        h = XXH3_64bits_withSeed(*word, strlen(*word) + 1, h);
    snprintf(out, 32, "%016llx", (unsigned long long)h);
}

static ls_status path_of(const ls__launcher_plan *plan, const char *run, char out[LS_PATH_MAX])
{
    char folder[LS_PATH_MAX];
    LS_TRY(ls__path_join(folder, plan->runs_dir, run));
    return ls__path_join(out, folder, file_name);
}

static bool take_text(const json_t *object, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= size) return false;
    snprintf(out, size, "%s", text);
    return true;
}

static bool take_number(const json_t *object, const char *key, int low, int high, int *out)
{
    const json_t *number = json_object_get(object, key);
    json_int_t value = json_integer_value(number);
    if (!json_is_integer(number) || value < low || value > high) return false;
    *out = (int)value;
    return true;
}

static bool take_nodes(const json_t *list, ls__first_before *out)
{
    size_t n = json_array_size(list);
    if (n < 1 || n > LS__NODES_MAX) return false;
    out->joins = ls__alloc(n, sizeof *out->joins);
    if (!out->joins) return false;
    out->nodes = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *node = json_array_get(list, i);
        if (!take_text(node, "host", out->joins[i].host, sizeof out->joins[i].host) ||
            !take_number(node, "ranks", 0, LS__WORLD_MAX, &out->joins[i].size))
            return false;
    }
    return true;
}

ls_status ls__first_before_parse(const char *text, size_t nbytes, ls__first_before *out)
{
    char said[64];
    *out = (ls__first_before) { 0 };
    json_t *d = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, NULL);
    bool good = take_text(d, "schema", said, sizeof said) && strcmp(said, schema) == 0 &&
                take_text(d, "key", out->key, sizeof out->key) &&
                take_text(d, "host", out->host, sizeof out->host) &&
                take_text(d, "run_id", out->run_id, sizeof out->run_id) &&
                take_text(d, "secret", out->secret, 256) &&
                take_number(d, "port", 1, 65535, &out->port) &&
                take_number(d, "restarts", 0, INT32_MAX - 1, &out->restarts) &&
                json_is_boolean(json_object_get(d, "started")) &&
                take_nodes(json_object_get(d, "nodes"), out);
    out->started = json_is_true(json_object_get(d, "started"));
    json_decref(d);
    if (good) return LS_OK;
    ls__first_before_free(out);
    return ls_fail(LS_ERR_DATA, "not what a first node leaves");
}

void ls__first_before_free(ls__first_before *before)
{
    ls__free(before->joins);
    *before = (ls__first_before) { 0 };
}

/* --- finding --- */

/* One's own, that nobody else could read; *age: seconds since it was touched. */
static ls_status read_file(const char *path, ls__first_before *out, double *age)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool good = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                info.st_uid == geteuid() && (info.st_mode & 077) == 0 && info.st_size < FILE_MAX;
    char *text = good ? ls__alloc((size_t)info.st_size + 1, 1) : NULL;
    good = text && read(fd, text, (size_t)info.st_size) == info.st_size;
    if (fd >= 0) close(fd);
    ls_status status = good ? ls__first_before_parse(text, (size_t)info.st_size, out)
                            : ls_fail(LS_ERR_IO, "%s cannot be read", path);
    if (good) *age = ls__wall_time() - (double)info.st_mtim.tv_sec;
    ls__free(text);
    return status;
}

/* Whether another process works on the run; one that was just killed may need a moment to be gone. */
static bool is_locked(const ls__launcher_plan *plan, const char *run)
{
    char folder[LS_PATH_MAX];
    int fd = -1;
    if (ls__path_join(folder, plan->runs_dir, run) != LS_OK ||
        ls__launch_lock(folder, run, &fd) != LS_OK)
        return true;
    close(fd);
    return false;
}

static bool is_ours(const ls__launcher_plan *plan, const char *run, double age,
                    const ls__first_before *b)
{
    char key[32];
    double limit = plan->nodes.timeout;
    key_of(plan, key);
    return strcmp(b->key, key) == 0 && strcmp(b->host, plan->host) == 0 &&
           b->nodes == plan->nodes.launchers && (limit < 0 || age < limit + slack_seconds) &&
           (!b->started || b->restarts < plan->max_restarts) && !is_locked(plan, run);
}

static bool look_at(const ls__launcher_plan *plan, const char *run, ls__first_before *out,
                    double *age)
{
    char path[LS_PATH_MAX];
    if (path_of(plan, run, path) != LS_OK || !ls__path_exists(path) ||
        read_file(path, out, age) != LS_OK)
        return false;
    if (is_ours(plan, run, *age, out)) return true;
    ls__first_before_free(out);
    return false;
}

/* The one that was lost last. */
static bool look_at_all(const ls__launcher_plan *plan, char run[256], ls__first_before *out)
{
    double best = 0, age;
    ls__first_before one;
    bool found = false;
    DIR *runs = opendir(plan->runs_dir);
    for (struct dirent *e; runs && (e = readdir(runs));) {
        if (e->d_name[0] == '.' || !look_at(plan, e->d_name, &one, &age)) continue;
        if (found && age >= best) {
            ls__first_before_free(&one);
            continue;
        }
        if (found) ls__first_before_free(out);
        *out = one;
        best = age;
        found = true;
        snprintf(run, 256, "%.255s", e->d_name);
    }
    if (runs) closedir(runs);
    return found;
}

void ls__first_node_find(ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    ls__first_before *b = ls__alloc(1, sizeof *b);
    char run[256];
    double age;
    bool may = b && nodes->role == LS__NODES_FIRST && plan->max_restarts > 0;
    snprintf(run, sizeof run, "%s", plan->name);
    bool found = may && (run[0] ? look_at(plan, run, b, &age) : look_at_all(plan, run, b));
    if (!found) {
        ls__free(b);
        return;
    }
    snprintf(plan->name, sizeof plan->name, "%s", run);
    snprintf(plan->run_id, sizeof plan->run_id, "%s", b->run_id);
    if (nodes->own_secret && b->secret[0])
        snprintf(nodes->secret, sizeof nodes->secret, "%s", b->secret);
    if (nodes->port == 0) nodes->port = b->port;
    nodes->before = b;
    ls__log(LS__LOG_INFO,
            "run %s is taken up again, after %d of %d restarts: nodes that still wait come back",
            run, b->restarts, plan->max_restarts);
}

/* --- keeping --- */

static json_t *nodes_of(const ls__launcher_job *j)
{
    json_t *list = json_array();
    for (int i = 0; i < ls__hub_launchers(j->nodes->hub); i++) {
        const ls__node_join *join = ls__hub_join_of(j->nodes->hub, i);
        json_array_append_new(list,
                              json_pack("{s:s,s:i}", "host", join->host, "ranks", join->size));
    }
    return list;
}

/* Never readable by others, and whole or not at all. */
static ls_status write_file(const char *path, const char *text)
{
    char part[LS_PATH_MAX];
    snprintf(part, sizeof part, "%.4000s.%d", path, (int)getpid());
    unlink(part);
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    bool good = fd >= 0 && write(fd, text, n) == (ssize_t)n && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0) good = false;
    if (good && rename(part, path) == 0) return LS_OK;
    ls_status status = ls__fail_errno(LS_ERR_IO, "%s", path);
    unlink(part);
    return status;
}

static bool has_file(const ls__launcher_job *j, char path[LS_PATH_MAX])
{
    const ls__launcher_plan *plan = j->plan;
    return j->nodes && j->nodes->hub && plan->max_restarts > 0 && plan->name[0] &&
           path_of(plan, plan->name, path) == LS_OK;
}

void ls__first_node_keep(const ls__launcher_job *j)
{
    const ls__launcher_plan *plan = j->plan;
    char path[LS_PATH_MAX], key[32];
    if (!has_file(j, path)) return;
    key_of(plan, key);
    json_t *d = json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:b,s:o}", "schema", schema, "key", key,
                          "host", plan->host, "run_id", plan->run_id, "secret",
                          plan->nodes.own_secret ? plan->nodes.secret : "", "port",
                          ls__hub_port(j->nodes->hub), "restarts", j->restarts, "started",
                          j->nodes->started, "nodes", nodes_of(j));
    char *text = d ? ls__json_line(d) : NULL;
    if (!text || write_file(path, text) != LS_OK)
        ls__log(LS__LOG_WARN, "if this node is lost, it cannot come back: %s", ls_error_text());
    ls__free(text);
    json_decref(d);
}

void ls__first_node_touch(ls__launcher_job *j)
{
    char path[LS_PATH_MAX];
    if (ls__now() < j->nodes->touch_at || !has_file(j, path)) return;
    j->nodes->touch_at = ls__now() + touch_seconds;
    if (utimensat(AT_FDCWD, path, NULL, 0) != 0) ls__first_node_keep(j);
}

void ls__first_node_forget(const ls__launcher_job *j)
{
    char path[LS_PATH_MAX];
    if (has_file(j, path)) unlink(path);
}
