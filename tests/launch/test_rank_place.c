/* CPUs, memory and GPUs of ranks, on simulated machines. */
#include "testing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launch/rank_place.h"

static ls__launcher_plan plan;
static ls__rank_place places[16];
static ls__gpus gpus;

/* Two packages with two nodes of four CPUs each: two cores, two threads a core, an L3 per core. */
static ls__cpu_places machine(void)
{
    ls__cpu_places p;
    memset(&p, 0xFF, sizeof p);
    for (int cpu = 0; cpu < 16; cpu++) {
        p.package[cpu] = (int16_t)(cpu / 8);
        p.node[cpu] = (int16_t)(cpu / 4);
        p.core[cpu] = p.complex[cpu] = (int16_t)(cpu / 2);
    }
    return p;
}

static void begin(ls__device_kind kind, int size, bool pin)
{
    memset(&plan, 0, sizeof plan);
    memset(places, 0, sizeof places);
    plan.places = places;
    plan.size = size;
    plan.devices.kind = kind;
    plan.devices.pin = pin;
    plan.devices.threads = 16 / size;
    plan.place.world_size = plan.place.local_size = size;
    plan.place.nodes = 1;
    for (int cpu = 0; cpu < 16; cpu++) CPU_SET(cpu, &plan.cpus.mask);
}

static bool named; /* the binding was asked for: memory comes from nowhere else */

static void expect(int rank, const char *cpus, uint64_t nodes)
{
    char text[LS__CPU_SET_TEXT];
    ls__cpu_set_text(&places[rank].cpus, text);
    assert_string_equal(text, cpus);
    assert_true(places[rank].bound);
    assert_true(places[rank].memory_nodes == nodes);
    assert_int_equal(places[rank].memory_bound, named);
}

static void bind(const char *how, const int *nodes)
{
    named = how != NULL;
    ls__cpu_places p = machine();
    assert_ok(ls__rank_places_bind(how, &p, nodes, &plan));
}

static void ranks_on_gpus(void **state)
{
    (void)state;
    static const int nodes[4] = { 3, 1, 1, -1 };
    begin(LS__DEVICE_GPU, 4, false);
    bind(NULL, nodes);
    expect(0, "12-15", 8);
    expect(1, "4-7", 2);
    expect(2, "4-7", 2);
    assert_false(places[3].bound); /* nobody knows where its GPU is */
    begin(LS__DEVICE_GPU, 4, false);
    bind("socket", nodes);
    expect(0, "8-15", 12);
    expect(1, "0-7", 3);
    begin(LS__DEVICE_GPU, 4, false);
    bind("exclusive", nodes);
    expect(0, "12-15", 8);
    expect(1, "4-5", 2);
    expect(2, "6-7", 2);
    begin(LS__DEVICE_GPU, 4, false);
    bind("core-complex", nodes);
    expect(0, "12-13", 8);
    expect(2, "6-7", 2);
    begin(LS__DEVICE_GPU, 4, false);
    bind("none", nodes);
    for (int r = 0; r < 4; r++) assert_false(places[r].bound);
}

static void ranks_on_cpus(void **state)
{
    (void)state;
    begin(LS__DEVICE_CPU, 2, true);
    bind(NULL, NULL);
    expect(0, "0-7", 3);
    expect(1, "8-15", 12);
    begin(LS__DEVICE_CPU, 2, false);
    bind(NULL, NULL);
    assert_false(places[0].bound); /* somebody else may compute here */
    begin(LS__DEVICE_CPU, 16, true);
    bind(NULL, NULL);
    assert_false(places[0].bound); /* one CPU each */
    begin(LS__DEVICE_CPU, 8, false);
    bind("node", NULL);
    expect(1, "0-3", 1);
    expect(2, "4-7", 2);
    expect(7, "12-15", 8);
    begin(LS__DEVICE_CPU, 16, false);
    bind("exclusive", NULL);
    expect(5, "5", 2); /* fewer cores than ranks: a CPU each */
}

/* Of a node of which no CPU is ours nothing is taken. */
static void a_mask_without_the_node(void **state)
{
    (void)state;
    static const int nodes[2] = { 0, 3 };
    begin(LS__DEVICE_GPU, 2, false);
    for (int cpu = 8; cpu < 16; cpu++) CPU_CLR(cpu, &plan.cpus.mask);
    bind("node", nodes);
    expect(0, "0-3", 1);
    assert_false(places[1].bound);
    ls__cpu_places p = machine();
    assert_fails(ls__rank_places_bind("nodes", &p, nodes, &plan), LS_ERR_CONFIG, "core-complex");
}

static bool the_first_node(uint64_t nodes)
{
    errno = EINVAL;
    return nodes == 1;
}

static bool no_nodes(uint64_t nodes)
{
    (void)nodes;
    errno = EPERM;
    return false;
}

/* What the kernel refuses is preferred instead, and said. */
static void memory_that_cannot_be_bound(void **state)
{
    (void)state;
    static const int nodes[2] = { 0, 2 };
    begin(LS__DEVICE_GPU, 2, false);
    bind("node", nodes);
    assert_ok(ls__rank_places_check("node", the_first_node, &plan));
    assert_true(places[0].memory_bound && !places[1].memory_bound);
    assert_ok(ls__rank_places_check("node", no_nodes, &plan));
    assert_false(places[0].memory_bound || places[1].memory_bound);
    assert_true(places[1].memory_nodes == 4 && places[1].bound);
    bind(NULL, nodes);
    assert_ok(ls__rank_places_check(NULL, no_nodes, &plan));
    assert_false(places[0].memory_bound);
}

/* The stand-in for the driver's library. */
static void discover(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fake/libnvidia-ml.so.1", getenv("LS_BINARY_DIR"));
    setenv("FAKE_NVML_GPUS", "4", 1);
    ls__gpus_discover(path, &gpus);
    assert_int_equal(gpus.count, 4);
    for (int i = 0; i < 4; i++) { /* one of them is lost, and has no name */
        gpus.gpus[i].numa_node = i / 2;
        snprintf(gpus.gpus[i].uuid, sizeof gpus.gpus[i].uuid, "GPU-%08d-fake", i);
    }
}

static void show(bool isolate, const char *spec, const char *found)
{
    assert_ok(ls__rank_places_show(isolate, spec, found, 4, &gpus, &plan));
}

static void all_gpus_are_left_as_they_are(void **state)
{
    (void)state;
    discover();
    begin(LS__DEVICE_GPU, 4, false);
    show(false, NULL, NULL);
    assert_string_equal(plan.visible, "");
    assert_int_equal(ls__rank_gpu_node(&plan, &gpus, 3), 1);
    begin(LS__DEVICE_GPU, 2, false);
    show(false, NULL, "3,0");
    assert_string_equal(plan.visible, "");
    assert_int_equal(ls__rank_gpu_node(&plan, &gpus, 0), 1);
    assert_int_equal(ls__rank_gpu_node(&plan, &gpus, 1), 0);
}

static void some_gpus_are_numbers(void **state)
{
    (void)state;
    begin(LS__DEVICE_GPU, 2, false);
    show(false, NULL, NULL);
    assert_string_equal(plan.visible, "0,1");
    assert_true(plan.by_number && !plan.isolate);
    begin(LS__DEVICE_GPU, 2, false);
    show(false, NULL, "3,GPU-00000001-fake,0");
    assert_string_equal(plan.visible, "3,GPU-00000001-fake");
    assert_false(plan.by_number);
    begin(LS__DEVICE_GPU, 2, false); /* picked: gpu@2,1 */
    plan.devices.picks.count = 2;
    plan.devices.picks.device[1] = 1;
    snprintf(plan.devices.picks.visible, sizeof plan.devices.picks.visible, "%s,%s",
             gpus.gpus[2].uuid, gpus.gpus[1].uuid);
    show(false, "gpu@2,1", NULL);
    assert_string_equal(plan.visible, "2,1");
    assert_true(plan.by_number);
    memset(plan.visible, 0, sizeof plan.visible);
    show(false, gpus.gpus[2].uuid, NULL); /* said so */
    assert_non_null(strstr(plan.visible, gpus.gpus[2].uuid));
}

static void isolated_ones(void **state)
{
    (void)state;
    begin(LS__DEVICE_GPU, 4, false);
    show(true, NULL, NULL);
    assert_true(plan.isolate && plan.by_number);
    assert_string_equal(places[2].gpu, "2");
    begin(LS__DEVICE_GPU, 2, false); /* parts of GPUs cannot be shown together */
    show(false, NULL, "MIG-a,MIG-b");
    assert_true(plan.isolate && !plan.by_number);
    assert_string_equal(places[1].gpu, "MIG-b");
    begin(LS__DEVICE_GPU, 2, false); /* nor the same GPU twice: gpu@1*2 */
    plan.devices.picks.count = 2;
    snprintf(plan.devices.picks.visible, sizeof plan.devices.picks.visible, "%s",
             gpus.gpus[1].uuid);
    show(false, "gpu@1*2", NULL);
    assert_true(plan.isolate);
    assert_string_equal(places[0].gpu, "1");
    assert_string_equal(places[1].gpu, "1");
    begin(LS__DEVICE_CPU, 2, true);
    assert_fails(ls__rank_places_show(true, NULL, NULL, 0, &gpus, &plan), LS_ERR_CONFIG,
                 "leave it out");
}

static const char *variable(int rank, const char *name, char out[96])
{
    ls__rank_variables v;
    ls__launcher_start start = { .port = 1 };
    size_t n = strlen(name);
    assert_ok(ls__rank_variables_make(&plan, &start, rank, &v));
    snprintf(out, 96, "-");
    for (int i = 0; i < v.nset; i++)
        if (strncmp(v.set[i], name, n) == 0 && v.set[i][n] == '=')
            snprintf(out, 96, "%s", v.set[i] + n + 1);
    ls__rank_variables_free(&v);
    return out;
}

static void what_the_ranks_are_told(void **state)
{
    (void)state;
    char text[96];
    begin(LS__DEVICE_GPU, 2, false);
    show(true, NULL, NULL);
    assert_string_equal(variable(1, "CUDA_VISIBLE_DEVICES", text), "1");
    assert_string_equal(variable(1, "CUDA_DEVICE_ORDER", text), "PCI_BUS_ID");
    assert_string_equal(variable(1, "LOCAL_RANK", text), "0");
    assert_string_equal(variable(1, "RANK", text), "1");
    assert_string_equal(variable(1, "LT_NUM_NODES", text), "2");
    assert_string_equal(variable(1, "PL_TRAINER_NUM_NODES", text), "2");
    assert_string_equal(variable(1, "LT_DEVICES", text), "-");
    begin(LS__DEVICE_GPU, 4, false);
    show(false, NULL, NULL);
    assert_string_equal(variable(1, "CUDA_VISIBLE_DEVICES", text), "-");
    assert_string_equal(variable(1, "LOCAL_RANK", text), "1");
    assert_string_equal(variable(1, "LT_NUM_NODES", text), "-");
    assert_string_equal(variable(1, "ACCELERATE_USE_CPU", text), "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_on_gpus),
        cmocka_unit_test(ranks_on_cpus),
        cmocka_unit_test(a_mask_without_the_node),
        cmocka_unit_test(memory_that_cannot_be_bound),
        cmocka_unit_test(all_gpus_are_left_as_they_are),
        cmocka_unit_test(some_gpus_are_numbers),
        cmocka_unit_test(isolated_ones),
        cmocka_unit_test(what_the_ranks_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
