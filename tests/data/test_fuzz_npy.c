/* Mutated .npy files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_npy.c"
#include "helper_data_files.h"

int main(void)
{
    static const char *const literals[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }",
        "{'shape': (10,), 'fortran_order': True, 'descr': '<f8'}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 1, 2, 20L), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (20,), }",
    };
    uint8_t seed[1024], values[80] = { 1, 2, 3 };
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++)
        for (int major = 1; major <= 3; major++)
            fuzz_seed(seed, make_npy(seed, major, literals[i], values, sizeof values), 5000);
    return 0;
}
