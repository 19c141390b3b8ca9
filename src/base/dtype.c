/* Element types and arrays. */
#include <lockstep/base.h>

#include "base/check.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [LS_DTYPE_F32] = { "f32", 4 }, [LS_DTYPE_F64] = { "f64", 8 }, [LS_DTYPE_BF16] = { "bf16", 2 },
    [LS_DTYPE_U8] = { "u8", 1 },   [LS_DTYPE_I32] = { "i32", 4 }, [LS_DTYPE_I64] = { "i64", 8 },
    [LS_DTYPE_U64] = { "u64", 8 },
};

static bool is_dtype(ls_dtype type)
{
    return (size_t)type < sizeof dtypes / sizeof dtypes[0];
}

size_t ls_dtype_size(ls_dtype type)
{
    return is_dtype(type) ? dtypes[type].size : 0;
}

const char *ls_dtype_name(ls_dtype type)
{
    return is_dtype(type) ? dtypes[type].name : "?";
}

int64_t ls_array_count(const ls_array *array)
{
    int64_t count = 1;
    for (int i = 0; i < array->rank; i++) count *= array->shape[i];
    return count;
}
