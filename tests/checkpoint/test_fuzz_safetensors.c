/* Mutated safetensors files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_safetensors.c"

static size_t make(uint8_t *out, const char *json, size_t ndata)
{
    size_t n = strlen(json);
    memset(out, 0, 8 + n + ndata);
    out[0] = (uint8_t)n;
    out[1] = (uint8_t)(n >> 8);
    memcpy(out + 8, json, n);
    return 8 + n + ndata;
}

int main(void)
{
    static const char *const headers[] = {
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[8,10]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"y\":{\"dtype\":\"BF16\",\"shape\":[3,0],\"data_offsets\":[1,1]},"
        "\"z\":{\"dtype\":\"I8\",\"shape\":[9],\"data_offsets\":[1,10]}}   ",
    };
    uint8_t seed[1024];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        fuzz_seed(seed, make(seed, headers[i], 10), 20000);
    return 0;
}
