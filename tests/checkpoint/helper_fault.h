/* A file layer in which the n-th call that changes or syncs something fails. */
#ifndef LS_TEST_HELPER_FAULT_H
#define LS_TEST_HELPER_FAULT_H

#include "base/file.h"

typedef enum fault_kind {
    FAULT_FULL,  /* ENOSPC; a write writes half of its bytes first */
    FAULT_BROKEN /* EIO, from the n-th call on everything fails */
} fault_kind;

typedef struct fault_disk fault_disk;

/* n = 0: nothing fails, every write is short. */
fault_disk *fault_create(fault_kind kind, int n);
void fault_destroy(fault_disk *disk);
const ls__fs *fault_fs(fault_disk *disk);
bool fault_happened(const fault_disk *disk);

#endif
