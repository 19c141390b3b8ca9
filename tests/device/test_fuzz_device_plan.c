/* Mutated values of --devices. */
#define LS_FUZZ_DRIVER
#include "device/fuzz_device_plan.c"

int main(void)
{
    const char *const specs[] = { "auto",
                                  "4",
                                  "cpu:4",
                                  "gpu:2",
                                  "sim:64",
                                  "gpu@0,2",
                                  "gpu@0*2",
                                  "GPU-00000000-0000-0000-0000-000000000000",
                                  "gpu@0*2,1,MIG-7f*3",
                                  "0,1",
                                  "sim@0*2,7",
                                  "cpu:1024" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        fuzz_seed(specs[i], strlen(specs[i]), 5000);
    return 0;
}
