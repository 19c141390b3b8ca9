/* The board's memory: an anonymous file, inherited or handed over by descriptor. Who watches opens it
 * through /proc, so that a job does nothing for it. */
#include "world/board.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"

typedef struct line {
    _Alignas(64) _Atomic int64_t step;
    _Atomic int64_t noted_ns, process;
} line;

static const char file_name[] = "board.json", memory_name[] = "lockstep-board";

struct ls__board {
    int fd, size;
    line *lines; /* (size) */
};

ls_status ls__board_attach(int fd, int size, ls__board **out)
{
    *out = NULL;
    struct stat info;
    size_t nbytes = (size_t)size * sizeof(line);
    if (fstat(fd, &info) != 0 || info.st_size != (off_t)nbytes) {
        close(fd);
        return ls_fail(LS_ERR_PEER, "descriptor %d is not a job's board for %d ranks", fd, size);
    }
    ls__board *board = ls__alloc(1, sizeof *board);
    if (!board) {
        close(fd);
        return LS_ERR_MEMORY;
    }
    *board = (ls__board) { .fd = fd, .size = size };
    board->lines = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board->lines == MAP_FAILED) {
        board->lines = NULL;
        ls__board_destroy(board);
        return ls__fail_errno(LS_ERR_MEMORY, "mapping a job's board");
    }
    *out = board;
    return LS_OK;
}

ls_status ls__board_create(int size, ls__board **out)
{
    *out = NULL;
    int fd = memfd_create(memory_name, MFD_CLOEXEC);
    if (fd < 0) return ls__fail_errno(LS_ERR_MEMORY, "memfd_create");
    if (ftruncate(fd, (off_t)((size_t)size * sizeof(line))) != 0) {
        ls_status status = ls__fail_errno(LS_ERR_MEMORY, "growing a job's board");
        close(fd);
        return status;
    }
    LS_TRY(ls__board_attach(fd, size, out));
    for (int r = 0; r < size; r++) atomic_store(&(*out)->lines[r].step, -1);
    return LS_OK;
}

int ls__board_fd(const ls__board *board)
{
    return board->fd;
}

void ls__board_destroy(ls__board *board)
{
    if (!board) return;
    if (board->lines) munmap(board->lines, (size_t)board->size * sizeof(line));
    close(board->fd);
    ls__free(board);
}

void ls__board_set_step(ls__board *board, int rank, int64_t step)
{
    line *l = &board->lines[rank];
    atomic_store_explicit(&l->step, step, memory_order_relaxed);
    atomic_store_explicit(&l->noted_ns, ls__now_ns(), memory_order_relaxed);
}

void ls__board_set_process(ls__board *board, int rank, int64_t pid)
{
    atomic_store_explicit(&board->lines[rank].process, pid, memory_order_relaxed);
}

int64_t ls__board_step(const ls__board *board, int rank)
{
    return atomic_load_explicit(&board->lines[rank].step, memory_order_relaxed);
}

int64_t ls__board_last_step(const ls__board *board)
{
    int64_t last = -1;
    for (int r = 0; r < board->size; r++) {
        int64_t step = ls__board_step(board, r);
        if (step > last) last = step;
    }
    return last;
}

/* --- watching --- */

enum { FILE_MAX = 4096 };

ls_status ls__board_publish(const ls__board *board, const char *folder)
{
    char path[LS_PATH_MAX], host[256] = "";
    LS_TRY(ls__path_join(path, folder, file_name));
    gethostname(host, sizeof host - 1);
    json_t *document = json_pack("{s:s,s:s,s:i,s:i,s:i}", "schema", "lockstep.board/1", "host",
                                 host, "pid", (int)getpid(), "fd", board->fd, "size", board->size);
    ls_status status = document ? ls__json_write(&ls__fs_unsynced, path, document) : LS_ERR_MEMORY;
    json_decref(document);
    return status;
}

/* Opens what the file names, if it is still a board: the process may be gone and its number another's. */
static int open_board(const json_t *document, char host[256])
{
    char path[64], target[64] = "", here[256] = "";
    const char *text = json_string_value(json_object_get(document, "host"));
    snprintf(host, 256, "%s", text ? text : "");
    gethostname(here, sizeof here - 1);
    if (strcmp(host, here) != 0) return -1;
    host[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/fd/%d",
             (int)json_integer_value(json_object_get(document, "pid")),
             (int)json_integer_value(json_object_get(document, "fd")));
    if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, memory_name)) return -1;
    return open(path, O_RDWR | O_CLOEXEC);
}

ls_status ls__board_find(const char *folder, ls__board **out)
{
    char path[LS_PATH_MAX], host[256];
    json_t *document;
    *out = NULL;
    LS_TRY(ls__path_join(path, folder, file_name));
    if (!ls__path_exists(path)) return ls_fail(LS_ERR_CONFIG, "%s: there is none", path);
    LS_TRY(ls__json_read(path, FILE_MAX, &document));
    int fd = open_board(document, host);
    int size = (int)json_integer_value(json_object_get(document, "size"));
    json_decref(document);
    if (fd >= 0) return ls__board_attach(fd, size, out);
    if (host[0]) return ls_fail(LS_ERR_CONFIG, "it runs on host %s; look there", host);
    return ls_fail(LS_ERR_CONFIG, "its ranks cannot be looked at (another user's, or gone)");
}

int ls__board_size(const ls__board *board)
{
    return board->size;
}

int64_t ls__board_process(const ls__board *board, int rank)
{
    return atomic_load_explicit(&board->lines[rank].process, memory_order_relaxed);
}

int64_t ls__board_noted_ns(const ls__board *board, int rank)
{
    return atomic_load_explicit(&board->lines[rank].noted_ns, memory_order_relaxed);
}
