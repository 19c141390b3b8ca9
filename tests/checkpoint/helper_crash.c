#include "helper_crash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES_MAX = 4096, FDS_MAX = 1024, NAME_SIZE = 256, ROOT = 0 };

typedef enum op_kind { MAKE, REMOVE, RENAME, WRITE, RESIZE, SYNC, PROMISE } op_kind;

/* Names belong to folder `node`, bytes and sizes to file `node`. */
typedef struct op {
    op_kind kind;
    int node;
    char name[NAME_SIZE], to[NAME_SIZE]; /* MAKE, REMOVE, RENAME */
    int made;                            /* MAKE: the new node */
    int64_t offset;                      /* WRITE; RESIZE, PROMISE: the number */
    size_t nbytes;
    char *data;
} op;

typedef struct node {
    char kind; /* d, f, l */
    char target[NAME_SIZE];
} node;

typedef struct dirent_model {
    int folder, node;
    char name[NAME_SIZE];
} dirent_model;

typedef struct names {
    dirent_model *entries;
    int n, room;
} names;

struct crash_disk {
    char root[LS_PATH_MAX];
    ls__fs fs;
    pthread_mutex_t lock;
    op *ops;
    int nops, room, first; /* ops before first made what was there at the beginning */
    node nodes[NODES_MAX];
    int nnodes;
    names live;
    int fd_node[FDS_MAX];
};

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "crash model: %s: %s\n", what, strerror(errno));
    abort();
}

/* --- names --- */

static dirent_model *look_up(const names *n, int folder, const char *name)
{
    for (int i = 0; i < n->n; i++)
        if (n->entries[i].folder == folder && strcmp(n->entries[i].name, name) == 0)
            return &n->entries[i];
    return NULL;
}

static void remove_name(names *n, int folder, const char *name)
{
    dirent_model *entry = look_up(n, folder, name);
    if (entry) *entry = n->entries[--n->n];
}

static void add_name(names *n, int folder, const char *name, int made)
{
    remove_name(n, folder, name);
    if (n->n == n->room) {
        n->room = 2 * n->room + 64;
        n->entries = realloc(n->entries, (size_t)n->room * sizeof *n->entries);
    }
    dirent_model *entry = &n->entries[n->n++];
    entry->folder = folder;
    entry->node = made;
    snprintf(entry->name, sizeof entry->name, "%s", name);
}

static void apply_name(names *n, const op *o)
{
    if (o->kind == MAKE) add_name(n, o->node, o->name, o->made);
    if (o->kind == REMOVE) remove_name(n, o->node, o->name);
    if (o->kind != RENAME) return;
    dirent_model *entry = look_up(n, o->node, o->name);
    if (!entry) return;
    int moved = entry->node;
    remove_name(n, o->node, o->name);
    add_name(n, o->node, o->to, moved);
}

/* --- recording --- */

static op *record(crash_disk *d, op_kind kind, int at)
{
    if (d->nops == d->room) {
        d->room = 2 * d->room + 256;
        d->ops = realloc(d->ops, (size_t)d->room * sizeof *d->ops);
    }
    op *o = &d->ops[d->nops++];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    o->node = at;
    return o;
}

static void record_write(crash_disk *d, int at, const void *data, size_t nbytes, int64_t offset)
{
    op *o = record(d, WRITE, at);
    o->data = malloc(nbytes + 1);
    memcpy(o->data, data, nbytes);
    o->nbytes = nbytes;
    o->offset = offset;
}

/* The folder's node and the last part of the name; *found = what has that name, -1 = nothing. */
static int locate(crash_disk *d, const char *path, char name[NAME_SIZE], int *found)
{
    size_t n = strlen(d->root);
    check(strncmp(path, d->root, n) == 0, path);
    int folder = ROOT, here = ROOT;
    name[0] = '\0';
    for (const char *part = path + n; *part;) {
        while (*part == '/') part++;
        size_t length = strcspn(part, "/");
        if (length == 0) break;
        check(here >= 0 && length < NAME_SIZE, path);
        folder = here;
        snprintf(name, NAME_SIZE, "%.*s", (int)length, part);
        dirent_model *entry = look_up(&d->live, folder, name);
        here = entry ? entry->node : -1;
        part += length;
    }
    *found = here;
    return folder;
}

static int record_make(crash_disk *d, int folder, const char *name, char kind, const char *target)
{
    int made = d->nnodes++;
    check(made < NODES_MAX, "too many files");
    d->nodes[made].kind = kind;
    snprintf(d->nodes[made].target, sizeof d->nodes[made].target, "%s", target);
    op *o = record(d, MAKE, folder);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->made = made;
    apply_name(&d->live, o);
    return made;
}

static void make_at(crash_disk *d, const char *path, char kind, const char *target)
{
    char name[NAME_SIZE];
    int found, folder = locate(d, path, name, &found);
    record_make(d, folder, name, kind, target);
}

static void remove_at(crash_disk *d, const char *path)
{
    char name[NAME_SIZE];
    int found, folder = locate(d, path, name, &found);
    op *o = record(d, REMOVE, folder);
    snprintf(o->name, sizeof o->name, "%s", name);
    apply_name(&d->live, o);
}

/* --- the file layer --- */

static int crash_open(void *user, const char *path, int flags, int mode)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    char name[NAME_SIZE];
    int found, folder = locate(d, path, name, &found);
    int fd = open(path, flags, mode);
    if (fd >= 0) {
        check(fd < FDS_MAX, "too many descriptors");
        if (found < 0)
            found = record_make(d, folder, name, 'f', "");
        else if (flags & O_TRUNC)
            record(d, RESIZE, found);
        d->fd_node[fd] = found;
    }
    pthread_mutex_unlock(&d->lock);
    return fd;
}

static int64_t crash_pwrite(void *user, int fd, const void *data, size_t nbytes, int64_t offset)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    ssize_t n = pwrite(fd, data, nbytes, offset);
    if (n > 0) record_write(d, d->fd_node[fd], data, (size_t)n, offset);
    pthread_mutex_unlock(&d->lock);
    return n;
}

static int crash_truncate(void *user, int fd, int64_t nbytes)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    int result = ftruncate(fd, nbytes);
    if (result == 0) record(d, RESIZE, d->fd_node[fd])->offset = nbytes;
    pthread_mutex_unlock(&d->lock);
    return result;
}

static int crash_sync(void *user, int fd)
{
    crash_disk *d = user; /* no sync of the real disk: it does not lose power */
    pthread_mutex_lock(&d->lock);
    record(d, SYNC, d->fd_node[fd]);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static int crash_close(void *user, int fd)
{
    (void)user;
    return close(fd);
}

static int crash_rename(void *user, const char *from, const char *to)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    char name[NAME_SIZE], new_name[NAME_SIZE];
    int found, folder = locate(d, from, name, &found);
    int new_folder = locate(d, to, new_name, &found);
    int result = rename(from, to);
    check(result != 0 || folder == new_folder, "a rename from folder to folder");
    if (result == 0) {
        op *o = record(d, RENAME, folder);
        snprintf(o->name, sizeof o->name, "%s", name);
        snprintf(o->to, sizeof o->to, "%s", new_name);
        apply_name(&d->live, o);
    }
    pthread_mutex_unlock(&d->lock);
    return result;
}

static int crash_unlink(void *user, const char *path)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    int result = unlink(path);
    if (result == 0) remove_at(d, path);
    pthread_mutex_unlock(&d->lock);
    return result;
}

static int crash_rmdir(void *user, const char *path)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    int result = rmdir(path);
    if (result == 0) remove_at(d, path);
    pthread_mutex_unlock(&d->lock);
    return result;
}

static int crash_mkdir(void *user, const char *path, int mode)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    int result = mkdir(path, (mode_t)mode);
    if (result == 0) make_at(d, path, 'd', "");
    pthread_mutex_unlock(&d->lock);
    return result;
}

static int crash_symlink(void *user, const char *target, const char *path)
{
    crash_disk *d = user;
    pthread_mutex_lock(&d->lock);
    int result = symlink(target, path);
    if (result == 0) make_at(d, path, 'l', target);
    pthread_mutex_unlock(&d->lock);
    return result;
}

/* --- create --- */

static void scan_file(crash_disk *d, const char *path, int made)
{
    char *data;
    size_t nbytes;
    check(ls__file_read(path, 1 << 26, &data, &nbytes) == LS_OK, path);
    record_write(d, made, data, nbytes, 0);
    record(d, SYNC, made);
    free(data);
}

static void scan(crash_disk *d, const char *path, int folder)
{
    DIR *dir = opendir(path);
    check(dir != NULL, path);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char child[LS_PATH_MAX], target[NAME_SIZE] = "";
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        check(ls__path_join(child, path, entry->d_name) == LS_OK, path);
        check(lstat(child, &info) == 0, child);
        char kind = S_ISDIR(info.st_mode) ? 'd' : S_ISLNK(info.st_mode) ? 'l' : 'f';
        if (kind == 'l') check(readlink(child, target, sizeof target - 1) > 0, child);
        int made = record_make(d, folder, entry->d_name, kind, target);
        if (kind == 'd') scan(d, child, made);
        if (kind == 'f') scan_file(d, child, made);
    }
    closedir(dir);
    record(d, SYNC, folder);
}

crash_disk *crash_create(const char *root)
{
    crash_disk *d = calloc(1, sizeof *d);
    snprintf(d->root, sizeof d->root, "%s", root);
    d->fs = (ls__fs) { .user = d,
                       .open = crash_open,
                       .pwrite = crash_pwrite,
                       .truncate = crash_truncate,
                       .sync = crash_sync,
                       .close = crash_close,
                       .rename = crash_rename,
                       .unlink = crash_unlink,
                       .mkdir = crash_mkdir,
                       .rmdir = crash_rmdir,
                       .symlink = crash_symlink };
    pthread_mutex_init(&d->lock, NULL);
    d->nodes[d->nnodes++].kind = 'd';
    scan(d, root, ROOT);
    d->first = d->nops;
    return d;
}

void crash_destroy(crash_disk *d)
{
    for (int i = 0; i < d->nops; i++) free(d->ops[i].data);
    free(d->ops);
    free(d->live.entries);
    free(d);
}

const ls__fs *crash_fs(crash_disk *disk)
{
    return &disk->fs;
}

void crash_promise(crash_disk *d, int64_t promise)
{
    pthread_mutex_lock(&d->lock);
    bool untouched = d->nops == d->first;
    record(d, PROMISE, -1)->offset = promise;
    if (untouched) d->first = d->nops; /* it holds from the first moment on */
    pthread_mutex_unlock(&d->lock);
}

/* --- moments --- */

int crash_moments(const crash_disk *d)
{
    return d->nops - d->first;
}

int64_t crash_promised(const crash_disk *d, int moment)
{
    for (int i = d->first + moment - 1; i >= 0; i--)
        if (d->ops[i].kind == PROMISE) return d->ops[i].offset;
    return -1;
}

static bool is_name(const op *o)
{
    return o->kind == MAKE || o->kind == REMOVE || o->kind == RENAME;
}

/* loose[i]: whether op i need not have reached the disk by the moment. */
static bool *find_loose(const crash_disk *d, int end)
{
    bool *loose = calloc((size_t)end + 1, 1);
    bool *synced = calloc(NODES_MAX, 1);
    for (int i = end - 1; i >= 0; i--) {
        const op *o = &d->ops[i];
        if (o->kind == SYNC)
            synced[o->node] = true;
        else if (o->kind != PROMISE)
            loose[i] = !synced[o->node];
    }
    free(synced);
    return loose;
}

void crash_loose(const crash_disk *d, int moment, int *nnames, int *nwrites)
{
    int end = d->first + moment;
    bool *loose = find_loose(d, end);
    *nnames = *nwrites = 0;
    for (int i = 0; i < end; i++)
        if (loose[i]) ++*(is_name(&d->ops[i]) ? nnames : nwrites);
    free(loose);
}

/* --- making a state --- */

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Which loose changes of names arrived. By chance: of every folder the first few. */
static void choose_names(const crash_disk *d, int end, const bool *loose, int keep, uint64_t *seed,
                         bool *arrived)
{
    bool *closed = calloc(NODES_MAX, 1);
    for (int i = 0, n = 0; i < end; i++) {
        const op *o = &d->ops[i];
        if (!is_name(o)) continue;
        if (!loose[i])
            arrived[i] = true;
        else if (keep >= 0)
            arrived[i] = n++ < keep;
        else {
            if (draw(seed) % 3 == 0) closed[o->node] = true;
            arrived[i] = !closed[o->node];
        }
    }
    free(closed);
}

static void choose_data(const crash_disk *d, int end, const bool *loose, crash_data kind,
                        uint64_t *seed, bool *arrived)
{
    for (int i = 0; i < end; i++) {
        const op *o = &d->ops[i];
        if (o->kind != WRITE && o->kind != RESIZE) continue;
        arrived[i] = !loose[i] ||
                     (kind != CRASH_DATA_NONE && (kind != CRASH_DATA_SOME || draw(seed) % 2 == 0));
    }
}

typedef struct content {
    char *data;
    size_t nbytes;
} content;

static void resize(content *c, size_t nbytes)
{
    c->data = realloc(c->data, nbytes + 1);
    if (nbytes > c->nbytes) memset(c->data + c->nbytes, 0, nbytes - c->nbytes);
    c->nbytes = nbytes;
}

static void apply_data(content *c, const op *o, bool half)
{
    if (o->kind == RESIZE) resize(c, (size_t)o->offset);
    if (o->kind != WRITE) return;
    size_t nbytes = half ? o->nbytes / 2 : o->nbytes, end = (size_t)o->offset + nbytes;
    if (end > c->nbytes) resize(c, end);
    memcpy(c->data + o->offset, o->data, nbytes);
}

static void make_tree(const crash_disk *d, const names *n, const content *contents, int folder,
                      const char *path)
{
    for (int i = 0; i < n->n; i++) {
        const dirent_model *entry = &n->entries[i];
        char child[LS_PATH_MAX];
        if (entry->folder != folder) continue;
        check(ls__path_join(child, path, entry->name) == LS_OK, path);
        const node *what = &d->nodes[entry->node];
        const content *c = &contents[entry->node];
        if (what->kind == 'd') {
            check(mkdir(child, 0777) == 0, child);
            make_tree(d, n, contents, entry->node, child);
        } else if (what->kind == 'l') {
            check(symlink(what->target, child) == 0, child);
        } else {
            int fd = open(child, O_WRONLY | O_CREAT | O_EXCL, 0666);
            check(fd >= 0 && write(fd, c->data ? c->data : "", c->nbytes) == (ssize_t)c->nbytes,
                  child);
            close(fd);
        }
    }
}

void crash_make(const crash_disk *d, int moment, int keep, crash_data data, uint64_t seed,
                const char *root)
{
    int end = d->first + moment, last_write = -1;
    bool *loose = find_loose(d, end), *arrived = calloc((size_t)end + 1, 1);
    choose_names(d, end, loose, keep, &seed, arrived);
    choose_data(d, end, loose, data, &seed, arrived);
    content *contents = calloc(NODES_MAX, sizeof *contents);
    names disk = { 0 };
    for (int i = 0; i < end; i++)
        if (d->ops[i].kind == WRITE && loose[i]) last_write = i;
    for (int i = 0; i < end; i++) {
        if (!arrived[i]) continue;
        if (is_name(&d->ops[i]))
            apply_name(&disk, &d->ops[i]);
        else
            apply_data(&contents[d->ops[i].node], &d->ops[i],
                       data == CRASH_DATA_TORN && i == last_write);
    }
    check(ls__folder_remove(&ls__fs_posix, root) == LS_OK, root);
    check(mkdir(root, 0777) == 0, root);
    make_tree(d, &disk, contents, ROOT, root);
    for (int i = 0; i < NODES_MAX; i++) free(contents[i].data);
    free(contents);
    free(disk.entries);
    free(loose);
    free(arrived);
}
