/* What goes wrong on a GPU is caught on the simulated one, and said; the same done right is not.
 *
 * Each case is run by prog_sim_wrong in a process of its own, since many end it. Which sanitizer is
 * needed for a case is part of the table: without it the wrong form is not run. */
#include "testing.h"

#include <sys/wait.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { BY_TSAN = 1 };
#else
enum { BY_TSAN = 0 };
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { BY_ASAN = 1 };
#else
enum { BY_ASAN = 0 };
#endif

/* Pointers in a struct are found where the compiler can clear its padding. */
#if __has_builtin(__builtin_clear_padding)
enum { CLEARS_PADDING = 1 };
#else
enum { CLEARS_PADDING = 0 };
#endif

typedef enum needs { NOTHING, THREAD, ADDRESS, PADDING } needs;

#define RACE "ThreadSanitizer: data race"

static const struct {
    const char *name;
    needs needs;
    const char *text;      /* that is said when it is wrong */
    const char *text_asan; /* where the address sanitizer is first; NULL = the same */
} cases[] = {
    { "host_touches", NOTHING, "the host touched", NULL },
    { "host_pointer", NOTHING, "which is pinned host memory", NULL },
    { "host_pointer_in_struct", PADDING, "which is no memory of a device", NULL },
    { "other_device", NOTHING, "memory of simulated device 1", NULL },
    { "past_end", NOTHING, "bytes behind the end of 256", "use-after-poison" },
    { "freed", NOTHING, "freed memory of simulated device 0", NULL },
    { "freed_under_graph", NOTHING, "freed memory of simulated device 0", "use-after-poison" },
    { "copied_beyond", NOTHING, "its memory ends behind 252", NULL },
    { "copied_backwards", NOTHING, "is said to be host memory", NULL },
    { "missing_event", THREAD, RACE, NULL },
    { "batch_not_there", THREAD, RACE, NULL },
    { "batch_overwritten", THREAD, RACE, NULL },
    { "early_event", THREAD, RACE, NULL },
    { "event_missing_in_graph", THREAD, RACE, NULL },
    { "buffer_reused", THREAD, RACE, NULL },
    { "missing_barrier", THREAD, RACE, NULL },
    { "missing_second_barrier", THREAD, RACE, NULL },
    { "missing_syncwarp", THREAD, RACE, NULL },
    { "blocks_race", THREAD, RACE, NULL },
    { "divergent_barrier", NOTHING, "32 wait at __syncthreads", NULL },
    { "half_a_warp", NOTHING, "for lanes of their mask", NULL },
    { "different_masks", NOTHING, "with different masks", NULL },
    { "own_mask", NOTHING, "its own mask does not name", NULL },
    { "dynamic_shared", ADDRESS, "use-after-poison", NULL },
    { "too_much_shared", NOTHING, "100000 bytes of shared memory, of at most 49152", NULL },
    { "too_many_threads", NOTHING, "blocks of (1025, 1, 1) threads", NULL },
    { "synchronized_in_capture", NOTHING, "cudaErrorStreamCaptureInvalidated", NULL },
    { "allocated_in_capture", NOTHING, "cudaErrorStreamCaptureInvalidated", NULL },
    { "unjoined_capture", NOTHING, "is not waited for at the end", NULL },
    { "freed_twice", NOTHING, "cannot be freed here", NULL },
    { "vendor_touches_freed", NOTHING, "a stream's product touched", "use-after-poison" },
};

static char output[1 << 16];

/* The exit status of prog_sim_wrong, with what it said in output. */
static int run(const char *variables, const char *name, const char *form)
{
    char command[512];
    snprintf(command, sizeof(command),
             "TSAN_OPTIONS=\"$TSAN_OPTIONS atexit_sleep_ms=10\" LOCKSTEP_SIM_WORKERS=2 %s "
             "./prog_sim_wrong %s %s 2>&1",
             variables, name, form);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    while (fgetc(pipe) != EOF) continue; /* the rest of a long report */
    return pclose(pipe);
}

static void assert_right(const char *variables, const char *name)
{
    int status = run(variables, name, "right");
    if (status != 0) fail_msg("%s right: status %#x: %s", name, (unsigned)status, output);
}

/* Which worker takes which block is chance: on a busy machine one may take all, and a race between
 * blocks is then none. A few tries, before it counts as not caught. */
enum { TRIES = 20 };

static void assert_says(const char *variables, const char *name, const char *form, const char *text)
{
    int status = 0;
    for (int i = 0; status == 0 && i < TRIES; i++) status = run(variables, name, form);
    if (status == 0) fail_msg("%s %s is not caught: %s", name, form, output);
    if (!strstr(output, text)) fail_msg("%s %s: nothing of \"%s\": %s", name, form, text, output);
}

static void test_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) assert_right("", cases[i].name);
}

static bool can_be_caught(needs what)
{
    switch (what) {
    case THREAD:
        return BY_TSAN;
    case ADDRESS:
        return BY_ASAN;
    case PADDING:
        return CLEARS_PADDING;
    default:
        return true;
    }
}

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!can_be_caught(cases[i].needs)) continue;
        bool asan = BY_ASAN && cases[i].text_asan;
        assert_says("", cases[i].name, "wrong", asan ? cases[i].text_asan : cases[i].text);
    }
}

/* The program allocates twice and launches once. */
static void test_injected(void **state)
{
    (void)state;
    assert_says("LOCKSTEP_SIM_FAIL=malloc:2", "past_end", "right", "out of memory");
    assert_right("LOCKSTEP_SIM_FAIL=malloc:3", "past_end");
    assert_says("LOCKSTEP_SIM_FAIL=async:1", "past_end", "right",
                "cudaErrorLaunchFailure: unspecified launch failure: kernel copy: asked for");
    assert_right("LOCKSTEP_SIM_FAIL=async:2", "past_end");
    assert_says("LOCKSTEP_SIM_MEMORY=256", "past_end", "right", "out of memory");
    assert_right("LOCKSTEP_SIM_MEMORY=512", "past_end");
    assert_says("LOCKSTEP_SIM_DEVICES=1", "other_device", "wrong", "device 1 of 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_injected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
