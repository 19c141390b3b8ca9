/* Mutated control groups. */
#include "testing.h"

#include <unistd.h>

#include "base/file.h"
#include "device/fuzz_cgroup.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

#define V2 "24 1 0:21 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1 "32 31 0:29 /d\\134a /sys/fs/cgroup rw - cgroup cgroup rw,cpu,memory\n"

static void mutated_control_groups(void **state)
{
    (void)state;
    static const char v2[] = "0::/a/b\n\0" V2 "\000350000 100000\n\0001073741824\n";
    static const char v1[] = "4:cpu,memory:/d\\a/b\n3:x:/\n\0" V1 V2 "\0max 100000\n\0max\n";
    char folder[] = "/tmp/lockstep-fuzz-cgroup-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    fuzz_seed(v2, sizeof v2 - 1, 1500);
    fuzz_seed(v1, sizeof v1 - 1, 1500);
    assert_int_equal(chdir("/"), 0);
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_control_groups) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
