/* Mutated files of weights through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_weights.c"

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
        "{\"h.0.w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"h.11.w11\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[24,30]}}",
        "{\"mask.0\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"h.1.w\":{\"dtype\":\"BF16\",\"shape\":[3,0],\"data_offsets\":[1,1]},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[1099511627776,1099511627776,0],\"data_offsets\":[1,1]}"
        ","
        "\"z\":{\"dtype\":\"I8\",\"shape\":[29],\"data_offsets\":[1,30]}}",
    };
    static const char *const indices[] = {
        "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"b\":\"a.safetensors\"}}",
        "{\"weight_map\":{\"b\":\"a.safetensors\",\"c\":\"../a.safetensors\"}}",
    };
    uint8_t seed[1024];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        fuzz_seed(seed, make(seed, headers[i], 30), 10000);
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        size_t n = strlen(indices[i]);
        memcpy(seed, indices[i], n);
        fuzz_seed(seed, n, 3000);
    }
    return 0;
}
