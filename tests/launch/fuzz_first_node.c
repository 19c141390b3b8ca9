/* Fuzz entry: what a first node leaves for its return. */
#include <stddef.h>
#include <stdint.h>

#include "launch/first_node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__first_before before;
    if (ls__first_before_parse((const char *)data, size, &before) == LS_OK)
        ls__first_before_free(&before);
    return 0;
}
