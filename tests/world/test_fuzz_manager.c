/* Mutated answers of process managers. */
#define LS_FUZZ_DRIVER
#include "world/fuzz_manager.c"

int main(void)
{
    static const char where[] = "0123456789abcdef0123456789abcdef/45123/10.0.0.7/fe::1/192.168.1.2",
                      answer[] = "cmd=get_result rc=0 msg=success value=a/b\n";
    fuzz_seed(where, sizeof where - 1, 20000);
    fuzz_seed(answer, sizeof answer - 1, 20000);
    return 0;
}
