/* GPUs by a management library that stands for the driver's. */
#include "testing.h"

#include "device/nvml.h"

static ls__gpus gpus;

static const ls__gpus *discover(const char *count)
{
    char path[4096];
    const char *folder = getenv("LS_BINARY_DIR");
    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/tests/fake/libnvidia-ml.so.1", folder);
    setenv("FAKE_NVML_GPUS", count, 1);
    ls__gpus_discover(path, &gpus);
    return &gpus;
}

static void no_library_is_a_note(void **state)
{
    (void)state;
    ls__gpus_discover("/nowhere/libnvidia-ml.so.1", &gpus);
    assert_int_equal(gpus.count, 0);
    assert_non_null(strstr(gpus.note, "no NVIDIA driver"));
}

static void a_library_of_something_else_is_a_note(void **state)
{
    (void)state;
    ls__gpus_discover("libz.so.1", &gpus);
    assert_int_equal(gpus.count, 0);
    assert_non_null(strstr(gpus.note, "too old"));
}

static void a_broken_driver_is_named(void **state)
{
    (void)state;
    setenv("FAKE_NVML_FAIL", "18", 1);
    discover("2");
    unsetenv("FAKE_NVML_FAIL");
    assert_int_equal(gpus.count, 0);
    assert_non_null(strstr(gpus.note, "needs a restart of the machine: error 18"));
    discover("0");
    assert_non_null(strstr(gpus.note, "finds no GPU"));
}

static void a_busy_gpu_is_read_whole(void **state)
{
    (void)state;
    const ls__gpu *gpu = discover("1")->gpus;
    assert_int_equal(gpus.count, 1);
    assert_string_equal(gpus.driver, "999.12.34");
    assert_int_equal(gpus.cuda, 13020);
    assert_string_equal(gpu->name, "Fake GPU 0");
    assert_string_equal(gpu->uuid, "GPU-00000000-fake");
    assert_string_equal(gpu->bus, "00000000:3B:00.0");
    assert_int_equal(gpu->major, 9);
    assert_true(gpu->memory == 80ll << 30 && gpu->memory_used == 3ll << 30);
    assert_int_equal(gpu->utilization, 97);
    assert_int_equal(gpu->temperature, 88);
    assert_true(gpu->watts == 640.5 && gpu->watts_limit == 700);
    assert_int_equal(gpu->clock_mhz, 1125);
    assert_int_equal(gpu->clock_max_mhz, 1980);
    assert_int_equal(gpu->memory_clock_mhz, 2619);
    assert_string_equal(gpu->throttled, "power limit, heat (hardware)");
    assert_true(gpu->slowed);
    assert_int_equal(gpu->nprocesses, 2);
    assert_int_equal(gpu->processes[0].pid, 812);
    assert_true(gpu->processes[0].memory == 2ll << 30);
    assert_int_equal(gpu->processes[1].memory, LS_NONE);
}

static void a_divided_gpu_lists_its_devices(void **state)
{
    (void)state;
    const ls__gpu *gpu = &discover("2")->gpus[1];
    char text[LS__GPU_REASONS_TEXT];
    assert_true(gpu->divided);
    assert_int_equal(gpu->ninstances, 2);
    assert_string_equal(gpu->instances[1].uuid, "MIG-00000001-fake");
    assert_true(gpu->instances[1].memory == 40ll << 30);
    assert_int_equal(gpu->nprocesses, 0);
    assert_string_equal(gpu->throttled, "");
    assert_null(ls__gpu_trouble(gpu, text));
}

static void what_the_driver_does_not_say_is_none(void **state)
{
    (void)state;
    const ls__gpu *gpu = &discover("4")->gpus[3];
    assert_string_equal(gpu->name, "Fake GPU 3");
    assert_false(gpu->lost);
    assert_int_equal(gpu->memory, LS_NONE);
    assert_int_equal(gpu->utilization, LS_NONE);
    assert_int_equal(gpu->clock_mhz, LS_NONE);
    assert_true(gpu->watts == LS_NONE);
    assert_int_equal(gpu->nprocesses, LS_NONE);
    assert_int_equal(gpu->major, LS_NONE);
    assert_int_equal(gpu->errors, LS_NONE);
}

static void trouble_says_what_to_do(void **state)
{
    (void)state;
    char text[LS__GPU_REASONS_TEXT];
    setenv("FAKE_NVML_ERRORS", "3", 1);
    discover("3");
    unsetenv("FAKE_NVML_ERRORS");
    assert_string_equal(ls__gpu_trouble(&gpus.gpus[0], text),
                        "busy: process 812 and others computes on it, 3.0 GiB in use");
    assert_non_null(strstr(ls__gpu_trouble(&gpus.gpus[1], text), "3 memory errors"));
    assert_non_null(strstr(ls__gpu_trouble(&gpus.gpus[2], text), "lost"));
    setenv("FAKE_NVML_MODE", "2", 1);
    discover("2");
    unsetenv("FAKE_NVML_MODE");
    assert_non_null(strstr(ls__gpu_trouble(&gpus.gpus[1], text), "closed for computing"));
    gpus.gpus[0].nprocesses = gpus.gpus[0].compute_mode = 0;
    assert_non_null(strstr(ls__gpu_trouble(&gpus.gpus[0], text), "heat (hardware)"));
}

static void links_are_told_apart(void **state)
{
    (void)state;
    discover("4");
    assert_int_equal(gpus.links[0][1], LS__GPU_LINK_NVLINK);
    assert_int_equal(gpus.links[1][0], LS__GPU_LINK_NVLINK);
    assert_int_equal(gpus.links[0][2], LS__GPU_LINK_NONE); /* lost */
    assert_int_equal(gpus.links[0][3], LS__GPU_LINK_NONE);
    discover("2");
    assert_int_equal(gpus.links[0][0], LS__GPU_LINK_NONE);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The driver counts domains by eight digits and capitals, the kernel by four and small letters. */
static void a_gpu_has_a_place_in_the_machine(void **state)
{
    (void)state;
    char root[] = "/tmp/lockstep-place-XXXXXX", folder[128], command[160], cpus[LS__GPU_TEXT];
    int node;
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices/0001:3b:00.0", root);
    snprintf(command, sizeof command, "mkdir -p %s", folder);
    assert_int_equal(system(command), 0);
    write_file(folder, "numa_node", "1\n");
    write_file(folder, "local_cpulist", "32-63,96-127\n");
    ls__gpu_locality(root, "00000001:3B:00.0", &node, cpus);
    assert_int_equal(node, 1);
    assert_string_equal(cpus, "32-63,96-127");
    write_file(folder, "numa_node", "-1\n");
    ls__gpu_locality(root, "00000001:3B:00.0", &node, cpus);
    assert_int_equal(node, LS_NONE);
    ls__gpu_locality(root, "00000001:5E:00.0", &node, cpus);
    assert_string_equal(cpus, "");
    ls__gpu_locality(root, "no bus", &node, cpus);
    assert_int_equal(node, LS_NONE);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_library_is_a_note),
        cmocka_unit_test(a_library_of_something_else_is_a_note),
        cmocka_unit_test(a_broken_driver_is_named),
        cmocka_unit_test(a_busy_gpu_is_read_whole),
        cmocka_unit_test(a_divided_gpu_lists_its_devices),
        cmocka_unit_test(what_the_driver_does_not_say_is_none),
        cmocka_unit_test(trouble_says_what_to_do),
        cmocka_unit_test(links_are_told_apart),
        cmocka_unit_test(a_gpu_has_a_place_in_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
