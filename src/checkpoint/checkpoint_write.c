/* One save, from the buffer to a durable folder. Runs in the writing thread of each rank; ranks
 * meet only in the store. What is visible under the checkpoint's name is complete: everything
 * before the rename happens in a hidden folder that no other save ever had the name of. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

enum { WRITE_BYTES_PER_MS = 20000 }; /* the slowest disk we wait for: 20 MB/s */

static int open_for_write(const ls__fs *fs, const char *path, int more)
{
    int fd;
    do fd = fs->open(fs->user, path, O_WRONLY | O_CLOEXEC | more, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Syncs when all went well so far, and closes. */
static ls_status sync_and_close(const ls__fs *fs, int fd, const char *path, ls_status status)
{
    if (status == LS_OK && fs->sync(fs->user, fd) != 0)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot sync", path);
    if (fs->close(fs->user, fd) != 0 && status == LS_OK && errno != EINTR)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot close", path);
    return status;
}

/* For a wait on other ranks' work; the sync of so many bytes may take as long as writing them. -1 =
 * no limit. */
static int patience_ms(const ls__checkpointer *c, int64_t times)
{
    int64_t nbytes = 0;
    if (c->options.timeout_ms < 0) return -1;
    for (int i = 0; i < c->layout.nfiles; i++) nbytes += c->layout.files[i].nbytes;
    int64_t ms = times * (c->options.timeout_ms + nbytes / WRITE_BYTES_PER_MS);
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* --- rank 0: the hidden folder with both files in full size --- */

static ls_status create_file(const ls__checkpointer *c, const char *folder,
                             const ls__layout_file *file)
{
    const ls__fs *fs = c->options.fs;
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, file->name));
    int fd = open_for_write(fs, path, O_CREAT | O_EXCL);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot create", path);
    ls_status status = LS_OK;
    if (fs->truncate(fs->user, fd, file->nbytes) != 0)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot set its size", path);
    if (status == LS_OK)
        status = ls__file_pwrite(fs, fd, path, file->header, file->header_bytes, 0);
    return sync_and_close(fs, fd, path, status);
}

/* A name of its own, so that a writer of an earlier, killed start can never open a file of ours. */
static void temporary_name(int64_t step, char out[256])
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint64_t)getpid();
    char name[64];
    ls__step_name(step, name);
    snprintf(out, 256, ".%s.%016" PRIx64 ".tmp", name, random);
}

static ls_status begin(const ls__checkpointer *c, char temporary[256])
{
    const ls__fs *fs = c->options.fs;
    char folder[LS_PATH_MAX];
    temporary_name(c->step, temporary);
    LS_TRY(ls__path_join(folder, c->folder, temporary));
    if (fs->mkdir(fs->user, folder, 0777) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot create the folder", folder);
    for (int i = 0; i < c->layout.nfiles; i++) LS_TRY(create_file(c, folder, &c->layout.files[i]));
    return LS_OK;
}

/* --- every owner: its pieces --- */

/* Pieces of one file, which lie in the buffer one after the other. */
static ls_status write_pieces(const ls__checkpointer *c, const char *path, int fd,
                              ls__piece *pieces, int n, const char *data)
{
    for (int i = 0; i < n; i++) {
        pieces[i].xxh3 = XXH3_64bits(data, (size_t)pieces[i].nbytes);
        LS_TRY(ls__file_pwrite(c->options.fs, fd, path, data, (size_t)pieces[i].nbytes,
                               pieces[i].offset));
        data += pieces[i].nbytes;
    }
    return LS_OK;
}

static ls_status write_own(ls__checkpointer *c, const char *temporary)
{
    const ls__fs *fs = c->options.fs;
    const char *data = c->buffer;
    for (int first = 0, next; first < c->layout.npieces; first = next) {
        ls__piece *pieces = &c->layout.pieces[first];
        int64_t nbytes = 0;
        for (next = first; next < c->layout.npieces; next++) {
            if (c->layout.pieces[next].file != pieces->file) break;
            nbytes += c->layout.pieces[next].nbytes;
        }
        char folder[LS_PATH_MAX], path[LS_PATH_MAX];
        LS_TRY(ls__path_join(folder, c->folder, temporary));
        LS_TRY(ls__path_join(path, folder, c->layout.files[pieces->file].name));
        int fd = open_for_write(fs, path, 0);
        if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
        LS_TRY(sync_and_close(fs, fd, path, write_pieces(c, path, fd, pieces, next - first, data)));
        data += nbytes;
    }
    return LS_OK;
}

/* --- rank 0: all pieces, the manifest, the name --- */

static int by_place(const void *left, const void *right)
{
    const ls__piece *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static ls_status own_pieces(const ls__checkpointer *c, ls__piece **pieces, int *n)
{
    int count = c->layout.npieces + c->layout.nfiles;
    *pieces = ls__alloc((size_t)count, sizeof **pieces);
    if (!*pieces) return LS_ERR_MEMORY;
    for (int i = 0; i < c->layout.npieces; i++) (*pieces)[(*n)++] = c->layout.pieces[i];
    for (int i = 0; i < c->layout.nfiles; i++) {
        const ls__layout_file *file = &c->layout.files[i];
        (*pieces)[(*n)++] = (ls__piece) { .file = i,
                                          .nbytes = (int64_t)file->header_bytes,
                                          .xxh3 = XXH3_64bits(file->header, file->header_bytes) };
    }
    return LS_OK;
}

/* Every rank's report is awaited even after a failure: until then its writer may be at work. Only a
 * rank that says nothing ends the wait. */
static ls_status collect(ls__checkpointer *c, ls_status own, ls__piece **pieces, int *n)
{
    ls_status status = own;
    char text[2048] = "";
    if (own != LS_OK) snprintf(text, sizeof text, "%s", ls_error_text());
    for (int rank = 1; rank < c->options.size; rank++) {
        ls_status theirs = ls__report_await_pieces(c, rank, patience_ms(c, 1), pieces, n);
        if (theirs == LS_OK || status != LS_OK) continue;
        status = theirs;
        snprintf(text, sizeof text, "%s", ls_error_text());
        if (theirs == LS_ERR_TIMEOUT || theirs == LS_ERR_PEER) break;
    }
    return status == LS_OK ? LS_OK : ls_fail(status, "%s", text);
}

/* Sorted pieces cover every file once, from its first byte to its last. */
static ls_status check_cover(const ls__checkpointer *c, const ls__piece *pieces, int n)
{
    int i = 0;
    for (int f = 0; f < c->layout.nfiles; f++) {
        int64_t at = 0;
        for (; i < n && pieces[i].file == f && pieces[i].offset == at; i++) at += pieces[i].nbytes;
        if (at != c->layout.files[f].nbytes)
            return ls_fail(LS_ERR_INTERNAL,
                           "%s: the ranks' ranges leave a gap or overlap at byte "
                           "%" PRId64,
                           c->layout.files[f].name, at);
    }
    return i == n ? LS_OK : ls_fail(LS_ERR_INTERNAL, "a range of no file was reported");
}

static ls_status write_text(const ls__fs *fs, const char *folder, const char *name,
                            const char *text)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, name));
    int fd = open_for_write(fs, path, O_CREAT | O_EXCL);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot create", path);
    return sync_and_close(fs, fd, path, ls__file_pwrite(fs, fd, path, text, strlen(text), 0));
}

static ls_status write_manifest(const ls__checkpointer *c, const char *folder, ls__piece *pieces,
                                int n)
{
    ls__manifest_file files[LS__SHARED_FILES + 1];
    int nfiles = 0;
    for (int i = 0, next; i < n; i = next) {
        for (next = i; next < n && pieces[next].file == pieces[i].file;) next++;
        const ls__layout_file *file = &c->layout.files[pieces[i].file];
        files[nfiles++] = (ls__manifest_file) { .name = (char *)file->name,
                                                .nbytes = file->nbytes,
                                                .xxh3 = ls__pieces_sum(pieces + i, next - i),
                                                .pieces = pieces + i,
                                                .npieces = next - i };
    }
    size_t nbytes = strlen(c->trainer);
    files[nfiles++] = (ls__manifest_file) { .name = (char *)LS__TRAINER_FILE,
                                            .nbytes = (int64_t)nbytes,
                                            .xxh3 = XXH3_64bits(c->trainer, nbytes) };
    ls__manifest manifest = { .step = c->step,
                              .metric = c->metric,
                              .monitor = c->monitor,
                              .files = files,
                              .nfiles = nfiles };
    char *text;
    LS_TRY(ls__manifest_text(&manifest, &text));
    ls_status status = write_text(c->options.fs, folder, LS__MANIFEST_FILE, text);
    free(text);
    return status;
}

static ls_status finish(ls__checkpointer *c, const char *temporary, ls__piece *pieces, int n)
{
    char folder[LS_PATH_MAX];
    LS_TRY(ls__path_join(folder, c->folder, temporary));
    qsort(pieces, (size_t)n, sizeof *pieces, by_place);
    LS_TRY(check_cover(c, pieces, n));
    LS_TRY(write_text(c->options.fs, folder, LS__TRAINER_FILE, c->trainer));
    LS_TRY(write_manifest(c, folder, pieces, n));
    LS_TRY(ls__folder_sync(c->options.fs, folder));
    LS_TRY(ls__checkpoint_publish(c, temporary));
    return ls__checkpoint_retain(c);
}

/* --- the two roles --- */

/* What failed, and what that means for the run. */
static ls_status give_up(ls__checkpointer *c, const char *temporary, ls_status status)
{
    char text[2048], path[LS_PATH_MAX];
    snprintf(text, sizeof text, "%s", ls_error_text());
    if (ls__path_join(path, c->folder, temporary) == LS_OK && ls__path_exists(path) &&
        ls__folder_remove(c->options.fs, path) != LS_OK)
        ls__log(LS__LOG_WARN, "could not remove what a failed save left: %s", ls_error_text());
    if (c->nentries == 0)
        return ls_fail(status, "the checkpoint of step %" PRId64 " was not saved: %s", c->step,
                       text);
    return ls_fail(status,
                   "the checkpoint of step %" PRId64 " was not saved (that of step %" PRId64
                   " stays): %s",
                   c->step, c->entries[c->nentries - 1].step, text);
}

static ls_status lead(ls__checkpointer *c)
{
    char temporary[256];
    ls__piece *pieces = NULL;
    int n = 0;
    bool alone = c->options.size == 1;
    ls_status status = begin(c, temporary);
    if (!alone) {
        ls_status told = ls__report_begin(c, status, temporary);
        if (status == LS_OK) status = told;
    }
    if (status != LS_OK) return give_up(c, temporary, status);
    status = write_own(c, temporary);
    if (status == LS_OK) status = own_pieces(c, &pieces, &n);
    status = collect(c, status, &pieces, &n);
    if (status == LS_OK) status = finish(c, temporary, pieces, n);
    ls__free(pieces);
    if (status != LS_OK) status = give_up(c, temporary, status);
    ls_status told = alone ? LS_OK : ls__report_done(c, status);
    return status == LS_OK ? told : status;
}

static ls_status follow(ls__checkpointer *c)
{
    char temporary[256];
    ls_status status = ls__report_await_begin(c, patience_ms(c, 1), temporary);
    if (status != LS_OK && status != LS_ERR_MISMATCH) return status; /* rank 0's own */
    if (status == LS_OK) status = write_own(c, temporary);
    LS_TRY(ls__report_pieces(c, status));
    /* Rank 0 may wait for the slowest of us, then write: longer than any one wait of its own. */
    return ls__report_await_done(c, patience_ms(c, 2));
}

ls_status ls__checkpoint_write(ls__checkpointer *c)
{
    return c->options.rank == 0 ? lead(c) : follow(c);
}
