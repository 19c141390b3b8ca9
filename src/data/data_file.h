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
/* The same, without asking for any of it: in_memory is false until ls__data_file_want. */
ls_status ls__data_file_map(const char *path, ls__data_file *out);
/* Asks for the file's bytes: all at once, so that it is in_memory soon, or later only those that a
 * read touches. Several files that are read together are asked for whole if together they have at
 * most LS__DATA_WHOLE_MAX bytes. */
#define LS__DATA_WHOLE_MAX ((size_t)1 << 30)
void ls__data_file_want(ls__data_file *file, bool whole);
/* Takes the bytes [begin, end) off this process's resident memory; they stay in the page cache and
 * come back when they are read. Any thread, any time; nothing for memory of ours. */
void ls__data_file_drop(const ls__data_file *file, size_t begin, size_t end);
/* Begins to read bytes [begin, end) from the disk. */
void ls__data_file_fetch(const ls__data_file *file, size_t begin, size_t end);
void ls__data_file_close(ls__data_file *file); /* fine when all zero */

/* What a file that is not what it should be is instead, with what to do: " (it is a git-lfs
 * pointer: run git lfs pull)"; "" if nobody knows. */
const char *ls__data_file_guess(const uint8_t *bytes, size_t nbytes);

#endif
