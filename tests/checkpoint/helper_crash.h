/* A file layer that does what it is asked on a real folder and records it, and then makes the
 * states in which a power failure could have left the disk.
 *
 * The model is what POSIX promises and no more: bytes are on the disk for sure once their file was
 * synced after they were written, names once their folder was synced after they changed. Names of
 * one folder reach the disk in the order of the changes; bytes and names of different folders in
 * any order, or in part, or not at all. (Journals promise more; code that needs more is wrong.) */
#ifndef LS_TEST_HELPER_CRASH_H
#define LS_TEST_HELPER_CRASH_H

#include "base/file.h"

typedef struct crash_disk crash_disk;

/* What is in root now is durable. */
crash_disk *crash_create(const char *root);
void crash_destroy(crash_disk *disk);
const ls__fs *crash_fs(crash_disk *disk);
/* What the program promises from here on. */
void crash_promise(crash_disk *disk, int64_t promise);

/* Moments of failure: before any change, after the first, ... after the last: in [0, count]. */
int crash_moments(const crash_disk *disk);
/* The last promise before a moment; -1 = none. */
int64_t crash_promised(const crash_disk *disk, int moment);
/* Changes of names, and of bytes and sizes, that need not have reached the disk. */
void crash_loose(const crash_disk *disk, int moment, int *nnames, int *nwrites);

typedef enum crash_data {
    CRASH_DATA_NONE, /* no loose byte reached the disk */
    CRASH_DATA_ALL,
    CRASH_DATA_TORN, /* all, but the last write only by half */
    CRASH_DATA_SOME, /* by chance; sizes are changed apart from the bytes */
    CRASH_DATA_KINDS
} crash_data;

/* names: how many of the loose changes of names reached the disk; -1 = of each folder some, by
 * chance. root is emptied first. */
void crash_make(const crash_disk *disk, int moment, int names, crash_data data, uint64_t seed,
                const char *root);

#endif
