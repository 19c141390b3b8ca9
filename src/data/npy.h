/* NumPy's .npy format, versions 1 to 3 (numpy.lib.format): magic, a Python literal that describes
 * the array, elements. */
#ifndef LS_DATA_NPY_H
#define LS_DATA_NPY_H

#include "data/convert.h"

typedef struct ls__npy {
    const ls__stored *stored;
    int rank; /* at least 1 */
    int64_t shape[LS_MAX_RANK];
    const uint8_t *values;
} ls__npy;

/* Borrows bytes. Strict: C order, little-endian, exactly the elements that the header promises.
 * name is for errors, all LS_ERR_DATA; those that NumPy can mend end with the line that does. */
ls_status ls__npy_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__npy *out);

#endif
