/* Control groups in made-up roots: v1 and v2, nested limits, containers with and without a
 * namespace of their own. */
#include "testing.h"

#include <stdarg.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "device/cgroup.h"
#include "device/device.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/lockstep-test-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, root) == LS_OK ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    char whole[LS_PATH_MAX], folder[LS_PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    snprintf(folder, sizeof folder, "%s", whole);
    *strrchr(folder, '/') = '\0';
    assert_ok(ls__folder_make(&ls__fs_posix, folder));
    assert_ok(ls__file_write_atomic(&ls__fs_posix, whole, text, strlen(text)));
}

static void assert_limits(double cpus, int64_t memory)
{
    ls__cgroup_limits limits;
    ls__cgroup_read(root, &limits);
    if (limits.cpus != cpus || limits.memory != memory)
        fail_msg("%g CPUs, %lld bytes instead of %g, %lld", limits.cpus, (long long)limits.memory,
                 cpus, (long long)memory);
}

#define V2_MOUNT "24 1 0:21 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void nothing_to_read_is_no_limit(void **state)
{
    (void)state;
    assert_limits(0, 0);
    put("proc/self/cgroup", "0::/a\n");
    assert_limits(0, 0);
    put("proc/self/mountinfo", "nonsense\n\n1 2 3\n24 1 0:21 / /x rw\n");
    assert_limits(0, 0);
    put("proc/self/cgroup", "nonsense");
    put("proc/self/mountinfo", V2_MOUNT);
    assert_limits(0, 0);
}

/* A service in a slice: the tightest of each kind counts, wherever on the path it stands. */
static void v2_limits_add_up_along_the_path(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user.slice/job.scope\n");
    put("proc/self/mountinfo", "21 1 0:19 / /proc rw - proc proc rw\n" V2_MOUNT);
    put("sys/fs/cgroup/user.slice/job.scope/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n");
    assert_limits(0, 0);
    put("sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
    put("sys/fs/cgroup/user.slice/job.scope/memory.max", "8589934592\n");
    assert_limits(3.5, 8589934592);
    put("sys/fs/cgroup/user.slice/job.scope/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    assert_limits(1.5, 1073741824);
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_limits(0.5, 1073741824);
}

/* A container with its own namespace: our group is "/", its limits are at the mount. */
static void v2_container(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", V2_MOUNT);
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    put("sys/fs/cgroup/memory.max", "4294967296\n");
    assert_limits(2, 4294967296);
}

static void v1_controllers_have_trees_of_their_own(void **state)
{
    (void)state;
    put("proc/self/cgroup", "9:memory:/m\n4:cpu,cpuacct:/c/d\n1:name=systemd:/\n0::/\n");
    put("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
    assert_limits(0, 0);
    put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "50000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    assert_limits(2, 2147483648);
    put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "0\n"); /* nonsense is no limit */
    assert_limits(0, 2147483648);
}

/* A v1 container without a namespace: /proc/self/cgroup has the host's path, of which only what is
 * below the mounted group can be seen. The path has an escaped backslash. */
static void v1_container_sees_the_host_path(void **state)
{
    (void)state;
    put("proc/self/cgroup", "4:cpu:/docker/a\\x2db/sub\n5:memory:/elsewhere\n");
    put("proc/self/mountinfo",
        "32 31 0:29 /docker/a\\134x2db /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
        "33 31 0:29 /docker/a\\134x2db /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/cpu/sub/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/sub/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
    assert_limits(1, 1000000);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_limits(0.5, 1000000);
}

/* /docker/ab is not below a mounted /docker/a. */
static void a_longer_name_is_another_group(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/docker/ab\n");
    put("proc/self/mountinfo", "24 1 0:21 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/b/cpu.max", "100000 100000\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_limits(3, 0);
}

static void a_quota_bounds_the_usable_cpus(void **state)
{
    (void)state;
    ls__cpus cpus;
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", V2_MOUNT);
    put("sys/fs/cgroup/cpu.max", "20000 100000\n");
    put("sys/fs/cgroup/memory.max", "123456789\n");
    assert_ok(ls__cpus_discover(root, &cpus));
    assert_int_equal(cpus.usable, 1);
    assert_true(cpus.quota == 0.2);
    assert_int_equal(cpus.memory, 123456789);
    assert_true(cpus.machine_memory > cpus.memory);

    put("sys/fs/cgroup/cpu.max", "99900000 100000\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    assert_ok(ls__cpus_discover(root, &cpus));
    assert_int_equal(cpus.usable, cpus.in_mask);
    assert_int_equal(cpus.memory, cpus.machine_memory);
}

#define in_root(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_root(nothing_to_read_is_no_limit),
        in_root(v2_limits_add_up_along_the_path),
        in_root(v2_container),
        in_root(v1_controllers_have_trees_of_their_own),
        in_root(v1_container_sees_the_host_path),
        in_root(a_longer_name_is_another_group),
        in_root(a_quota_bounds_the_usable_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
