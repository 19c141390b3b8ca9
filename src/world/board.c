/* The board's memory: an anonymous file, inherited or handed over by descriptor. */
#include "world/board.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

typedef struct line {
    _Alignas(64) _Atomic int64_t step;
} line;

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
    int fd = memfd_create("lockstep-board", MFD_CLOEXEC);
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
    atomic_store_explicit(&board->lines[rank].step, step, memory_order_relaxed);
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
