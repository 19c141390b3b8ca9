/* Which GPUs --devices names, and what CUDA is shown of them. */
#include "testing.h"

#include "base/check.h"
#include "device/device_picks.h"

/* Three GPUs, of which the last is divided into two. */
static ls__gpus *machine(void)
{
    static ls__gpus gpus;
    static const char *const uuids[] = { "GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333" };
    memset(&gpus, 0, sizeof gpus);
    gpus.count = 3;
    for (int i = 0; i < 3; i++) {
        gpus.gpus[i].index = i;
        snprintf(gpus.gpus[i].uuid, sizeof gpus.gpus[i].uuid, "%s", uuids[i]);
        snprintf(gpus.gpus[i].name, sizeof gpus.gpus[i].name, "H200");
    }
    gpus.gpus[2].divided = true;
    return &gpus;
}

static ls_status pick(const char *spec, const char *visible, const char *order,
                      ls__device_plan *plan)
{
    static ls__gpu_names names;
    ls__cpus cpus = { .in_mask = 8, .usable = 8 };
    ls__gpu_names_find(visible, order, machine(), 3, &names);
    const ls__gpu_files files = { .count = 3, .plugin = true, .sim = true, .names = &names };
    LS_TRY(ls__devices_plan_with(spec, 0, &cpus, &files, plan));
    return plan->kind == LS__DEVICE_GPU ? ls__gpus_check(plan, &names, machine()) : LS_OK;
}

static void devices_are_picked(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *visible; /* CUDA_VISIBLE_DEVICES */
        int count, device[4];
        const char *shown, *text;
    } cases[] = {
        { "gpu@0", NULL, 1, { 0 }, "GPU-aaaa1111", "1 GPU" },
        { "gpu@1,0", NULL, 2, { 0, 1 }, "GPU-aaaa2222,GPU-aaaa1111", "2 GPUs" },
        { "0,1", NULL, 2, { 0, 1 }, "GPU-aaaa1111,GPU-aaaa2222", "2 GPUs" },
        { "gpu@1*2", NULL, 2, { 0, 0 }, "GPU-aaaa2222", "2 ranks on 1 GPU" },
        { "0*2,1", NULL, 3, { 0, 0, 1 }, "GPU-aaaa1111,GPU-aaaa2222", "3 ranks on 2 GPUs" },
        { "GPU-aaaa2", NULL, 1, { 0 }, "GPU-aaaa2222", "1 GPU" },
        { "gpu@GPU-aaaa2,0", NULL, 2, { 0, 1 }, "GPU-aaaa2222,GPU-aaaa1111", "2 GPUs" },
        { "MIG-7f,MIG-80", NULL, 2, { 0, 1 }, "MIG-7f,MIG-80", "2 GPUs" },
        { "MIG-GPU-bbbb3333/1/0", NULL, 1, { 0 }, "MIG-GPU-bbbb3333/1/0", "1 GPU" },
        { "gpu@0", "1,0", 1, { 0 }, "GPU-aaaa2222", "1 GPU" },
        { "gpu@1", "GPU-aaaa2222, GPU-aaaa1111", 1, { 0 }, "GPU-aaaa1111", "1 GPU" },
        { "gpu@0*3", "MIG-7f", 3, { 0, 0, 0 }, "MIG-7f", "3 ranks on 1 GPU" },
        { "sim@0*2", NULL, 2, { 0, 0 }, "", "2 ranks on 1 simulated GPU" },
        { "sim@3,0", NULL, 2, { 3, 0 }, "", "2 simulated GPUs" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__device_plan plan;
        assert_ok(pick(cases[i].spec, cases[i].visible, NULL, &plan));
        assert_int_equal(plan.count, cases[i].count);
        assert_int_equal(plan.picks.count, cases[i].count);
        for (int r = 0; r < plan.count; r++)
            assert_int_equal(ls__device_of(&plan, r), cases[i].device[r]);
        assert_string_equal(plan.picks.visible, cases[i].shown);
        assert_string_equal(plan.text, cases[i].text);
        assert_string_equal(plan.note, "");
    }
}

static void wrong_picks_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *visible, *text;
    } cases[] = {
        { "gpu@", NULL, "a GPU's number or UUID is missing" },
        { "gpu@0,", NULL, "a GPU's number or UUID is missing" },
        { "gpu@,0", NULL, "a GPU's number or UUID is missing" },
        { "gpu@3", NULL, "there is no GPU 3: 3 can be used here (lockstep devices" },
        { "gpu@2", "0,1", "there is no GPU 2: 2 can be used here by CUDA_VISIBLE_DEVICES" },
        { "gpu@0", "", "there is no GPU 0: 0 can be used here by CUDA_VISIBLE_DEVICES" },
        { "gpu@0,0", NULL, "0 is named twice; 0*2 puts two ranks on one GPU" },
        { "gpu@1,GPU-aaaa2222", NULL, "GPU-aaaa2222 is named twice" },
        { "MIG-7f,MIG-7f", NULL, "MIG-7f is named twice" },
        { "gpu@0*0", NULL, "with *N for N ranks on it" },
        { "gpu@0*", NULL, "with *N for N ranks on it" },
        { "gpu@0*2x", NULL, "with *N for N ranks on it" },
        { "gpu@0 1", NULL, "with *N for N ranks on it" },
        { "gpu@0*99999", NULL, "too many ranks" },
        { "gpu@GPU-aaaa", NULL, "several GPUs have a UUID that begins so" },
        { "gpu@GPU-cccc", NULL, "no GPU here has this UUID" },
        { "GPU-aaaa1111", "GPU-aaaa2222", "not among those that CUDA_VISIBLE_DEVICES lists" },
        { "gpu@2", NULL, "this GPU is divided (MIG): name one of its parts" },
        { "sim@GPU-1", NULL, "a number, or the beginning of a UUID" },
        { "sim@256", NULL, "there is no GPU 256" },
        { "0,2x", NULL, "must be auto" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__device_plan plan;
        assert_fails(pick(cases[i].spec, cases[i].visible, NULL, &plan), LS_ERR_CONFIG,
                     cases[i].text);
    }
}

/* CUDA may count unlike GPUs in another order than the driver: then numbers stay numbers. */
static void unlike_gpus_keep_their_numbers(void **state)
{
    (void)state;
    ls__gpus *gpus = machine();
    ls__gpu_names names;
    snprintf(gpus->gpus[1].name, sizeof gpus->gpus[1].name, "T400");
    ls__gpu_names_find("1", NULL, gpus, 3, &names);
    assert_string_equal(names.list[0].name, "1");
    assert_int_equal(names.list[0].known, -1);
    ls__gpu_names_find("1", "PCI_BUS_ID", gpus, 3, &names);
    assert_string_equal(names.list[0].name, "GPU-aaaa2222");
    ls__gpu_names_find(NULL, NULL, NULL, 2, &names);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.list[1].name, "1");
}

static void unwell_gpus_are_told(void **state)
{
    (void)state;
    ls__gpu_names names;
    ls__gpus *gpus = machine();
    ls__cpus cpus = { .in_mask = 8, .usable = 8 };
    ls__gpu_names_find(NULL, NULL, gpus, 3, &names);
    const ls__gpu_files files = { .count = 3, .plugin = true, .sim = true, .names = &names };
    ls__device_plan plan;
    gpus->gpus[0].nprocesses = 1;
    gpus->gpus[0].processes[0].pid = 812;
    gpus->gpus[0].memory_used = (int64_t)3 << 30;
    gpus->gpus[1].errors = 2;
    assert_ok(ls__devices_plan_with("gpu:2", 0, &cpus, &files, &plan));
    assert_ok(ls__gpus_check(&plan, &names, gpus));
    assert_non_null(strstr(plan.note, "GPU 0: busy: process 812 computes on it, 3.0 GiB in use; "
                                      "GPU 1: 2 memory errors"));
    assert_ok(ls__devices_plan_with("gpu@1*2", 0, &cpus, &files, &plan));
    gpus->gpus[1].compute_mode = 3;
    assert_fails(ls__gpus_check(&plan, &names, gpus), LS_ERR_UNSUPPORTED,
                 "GPU 1 admits one process at a time");
    gpus->gpus[1].lost = true;
    assert_fails(ls__gpus_check(&plan, &names, gpus), LS_ERR_UNSUPPORTED,
                 "GPU 1 cannot be used: lost");
}

static void cuda_is_shown_what_was_picked(void **state)
{
    (void)state;
    ls__device_plan plan;
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_ok(pick("gpu@1,0*2", NULL, NULL, &plan));
    ls__device_expose(&plan);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "GPU-aaaa2222,GPU-aaaa1111");
    ls__device_expose_own(&plan, 2);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "GPU-aaaa2222,GPU-aaaa1111");
    assert_int_equal(ls__device_of(&plan, 2), 1);
    assert_ok(pick("MIG-7f,MIG-80", NULL, NULL, &plan));
    ls__device_expose(&plan);
    ls__device_expose_own(&plan, 1);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "MIG-80");
    assert_int_equal(ls__device_of(&plan, 1), 0);
    assert_ok(pick("gpu:2", NULL, NULL, &plan));
    assert_int_equal(ls__device_of(&plan, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_picked),
        cmocka_unit_test(wrong_picks_are_named),
        cmocka_unit_test(unlike_gpus_keep_their_numbers),
        cmocka_unit_test(unwell_gpus_are_told),
        cmocka_unit_test(cuda_is_shown_what_was_picked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
