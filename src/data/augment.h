/* Random crop and mirror of one image while it is copied out of its file. */
#ifndef LS_DATA_AUGMENT_H
#define LS_DATA_AUGMENT_H

#include <lockstep/dataset.h>

#include "data/convert.h"

/* in: (C,H,W) stored elements, out: (C,H,W) of their field's type. rng NULL, or no option set: a
 * plain conversion. */
void ls__augment(const ls_image_options *options, ls_rng *rng, const ls__stored *stored,
                 const int64_t shape[3], const uint8_t *in, void *out);

#endif
