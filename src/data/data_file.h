/* A data file in memory, read-only: mapped, so that the ranks of a machine share its pages. */
#ifndef LS_DATA_FILE_H
#define LS_DATA_FILE_H

#include <lockstep/base.h>

typedef struct ls__data_file {
    const uint8_t *bytes;
    size_t nbytes;
    bool is_file; /* a mapping of the file; else memory of ours */
    bool
        in_memory; /* small enough that all of it was asked for at once: reads will not wait long */
} ls__data_file;

/* Every failure is LS_ERR_DATA and names the path. */
ls_status ls__data_file_open(const char *path, ls__data_file *out);
void ls__data_file_close(ls__data_file *file); /* fine when all zero */

/* What a file that is not what it should be is instead, with what to do: " (it is a git-lfs
 * pointer: run git lfs pull)"; "" if nobody knows. */
const char *ls__data_file_guess(const uint8_t *bytes, size_t nbytes);

#endif
