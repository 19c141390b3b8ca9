/* IDX, the format of MNIST (yann.lecun.com/exdb/mnist): 00 00 type rank, rank sizes of 32 bits,
 * elements; all big-endian. */
#ifndef LS_DATA_IDX_H
#define LS_DATA_IDX_H

#include "data/convert.h"
#include "data/data_file.h"

enum { LS__IDX_RANK_MAX = 4 };

typedef struct ls__idx {
    const ls__stored *stored;
    int rank;
    int64_t shape[LS__IDX_RANK_MAX];
    const uint8_t *values;
} ls__idx;

/* Borrows bytes. Strict: exactly the elements that the header promises. name is for errors, all
 * LS_ERR_DATA. */
ls_status ls__idx_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__idx *out);

bool ls__gzip_is(const uint8_t *bytes, size_t nbytes);
/* Unpacks an IDX file; its header says how large it becomes, so that a bomb is refused before it
 * takes memory. */
ls_status ls__idx_unpack(const uint8_t *packed, size_t nbytes, const char *name,
                         ls__data_file *out);

#endif
