/* Memory of a fit: predicted before its first step and measured at its end; and a step that takes
 * none: no page fault, no allocation, no system call. */
#include "trainer/helper_single.h"

#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "data/dataset_internal.h"

enum { FEATURES = 500, HIDDEN = 900, CLASSES = 10, SAMPLES = 4096, BATCH = 128 };
enum { FROM = 3, TO = 10, STEPS = 12 };

/* --- counting --- */

static atomic_long allocations;

/* Sanitizers have allocators and handlers of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTED
void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t nbytes);
void *__libc_memalign(size_t alignment, size_t nbytes);

/* Where operator new lives: oneDNN makes a few small nodes per primitive that it runs, which are not
 * ours to count. */
static uintptr_t foreign_begin, foreign_end;

static int find_foreign(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    if (!strstr(info->dlpi_name, "libstdc++")) return 0;
    foreign_begin = foreign_end = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (end > foreign_end) foreign_end = end;
    }
    return 1;
}

static void count_for(const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (from < foreign_begin || from >= foreign_end) atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t nbytes)
{
    count_for(__builtin_return_address(0));
    return __libc_malloc(nbytes);
}

void *calloc(size_t count, size_t size)
{
    count_for(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

void *realloc(void *p, size_t nbytes)
{
    count_for(__builtin_return_address(0));
    return __libc_realloc(p, nbytes);
}

void *aligned_alloc(size_t alignment, size_t nbytes)
{
    count_for(__builtin_return_address(0));
    return __libc_memalign(alignment, nbytes);
}
#endif

#ifdef COUNTED
/* The kernel hands a system call of this thread to SIGSYS while gate is closed. */
static volatile char gate;
static volatile int caught; /* the first one's number + 1 */

static void on_system_call(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    gate = 0; /* allow, also the way back from here; that one call is lost */
    caught = info->si_syscall + 1;
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static bool watch_system_calls(bool on)
{
    struct sigaction action = { .sa_sigaction = on_system_call, .sa_flags = SA_SIGINFO };
    gate = 0;
    if (!on) return prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) == 0;
    sigaction(SIGSYS, &action, NULL);
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &gate) == 0;
}
#else
static volatile char gate;
static volatile int caught;

static bool watch_system_calls(bool on)
{
    (void)on;
    return false;
}
#endif

/* --- data and model --- */

static int64_t length(void *self)
{
    (void)self;
    return SAMPLES;
}

static ls_status read_sample(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    (void)self, (void)rng;
    for (int j = 0; j < FEATURES; j++)
        ((float *)out[0])[j] = (float)((i * 31 + j * 17) % 101) / 101 - 0.5f;
    *(int32_t *)out[1] = (int32_t)(i * 31 % 101 * CLASSES / 101);
    return LS_OK;
}

static ls_dataset *make_data(void)
{
    static const ls_dataset_ops ops = { .length = length, .read = read_sample };
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { FEATURES } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    ls_dataset *out;
    assert_ok(ls_dataset_create(&ops, NULL, fields, 2, &out));
    out->in_memory = true; /* read by the thread that trains */
    return out;
}

static void step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *h = ls_input(g, "x");
    for (int i = 0; i < 4; i++) {
        h = ls_relu(ls_linear(h, ls_name(g, "fc%d", i), HIDDEN));
        h = ls_dropout(
            ls_add(h, ls_param(g, ls_name(g, "shift%d", i), NULL, 1, (const int64_t[]) { HIDDEN })),
            ls_name(g, "drop%d", i), 0.1);
    }
    ls_tensor *z = ls_linear(h, "head", CLASSES);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, ls_input(g, "label")));
}

/* --- what steps FROM to TO take --- */

typedef struct counts {
    long first_faults; /* of the first step */
    long faults, allocations;
    bool watched;
    int system_call;
} counts;

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static void on_begin(ls_run *run, void *user)
{
    (void)run;
    ((counts *)user)->first_faults = faults();
}

static void on_step(ls_run *run, void *user)
{
    counts *c = user;
    if (ls_run_step(run) == 1) c->first_faults = faults() - c->first_faults;
    if (ls_run_step(run) == FROM) {
        c->watched = watch_system_calls(true);
#ifdef COUNTED
        dl_iterate_phdr(find_foreign, NULL);
#endif
        c->faults = faults();
        c->allocations = atomic_load(&allocations);
        caught = 0;
        if (c->watched) gate = 1;
    }
    if (ls_run_step(run) == TO) {
        gate = 0;
        c->system_call = caught;
        c->faults = faults() - c->faults;
        c->allocations = atomic_load(&allocations) - c->allocations;
        watch_system_calls(false);
    }
}

static ls_run_result fit(const char *name, int micro_batches, double clip, counts *c)
{
    ls_model *model;
    ls_dataset *data = make_data();
    assert_ok(ls_model_create(world, step, NULL, &model));
    ls_callback callback = {
        .name = "counts", .user = c, .fit_begin = on_begin, .step_end = on_step
    };
    const ls_callback *callbacks[] = { &callback, NULL };
    ls_run_options options = { .batch_size = BATCH,
                               .max_steps = STEPS,
                               .micro_batches = micro_batches,
                               .name = name,
                               .runs_dir = folder,
                               .clip_norm = clip,
                               .save_every = { .steps = LS_NONE },
                               .callbacks = c ? callbacks : NULL };
    ls_run_result result;
    assert_ok(ls_fit(model, data, NULL, &options, &result));
    ls_model_destroy(model);
    ls_dataset_destroy(data);
    return result;
}

static void test_a_step_takes_nothing(void **state)
{
    (void)state;
    for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
        counts c = { 0 };
        fit(micro_batches == 1 ? "one" : "three", micro_batches, micro_batches == 1 ? 0 : 1, &c);
        print_message("the first step: %ld page faults\n", c.first_faults);
        print_message("steps %d to %d: %ld page faults, %ld allocations, system call %d\n", FROM,
                      TO, c.faults, c.allocations, c.system_call - 1);
#ifdef COUNTED
        assert_true(c.first_faults < 12); /* some for the heap and for code */
        assert_int_equal(c.faults, 0);
        assert_int_equal(c.allocations, 0);
        if (c.watched) assert_int_equal(c.system_call, 0);
#endif
    }
}

static void test_the_prediction(void **state)
{
    (void)state;
    ls_run_result r = fit("predicted", 2, 0, NULL);
    assert_true(r.memory_predicted_bytes > 0);
    print_message("predicted %lld, measured %lld\n", (long long)r.memory_predicted_bytes,
                  (long long)r.peak_rss_bytes);
#ifdef COUNTED
    assert_true((double)r.memory_predicted_bytes > 0.85 * (double)r.peak_rss_bytes);
    assert_true((double)r.memory_predicted_bytes < 1.15 * (double)r.peak_rss_bytes);
#endif
}

/* Every pair of features, and more: refused before any of it is touched. */
static void pairs(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_tensor *column = ls_reshape(x, 3, (const int64_t[]) { -1, FEATURES, 1 });
    ls_tensor *all = ls_mul(column, ls_reshape(x, 3, (const int64_t[]) { -1, 1, FEATURES }));
    all = ls_mul(ls_reshape(all, 3, (const int64_t[]) { -1, FEATURES * FEATURES, 1 }),
                 ls_param(g, "row", NULL, 1, (const int64_t[]) { 1 << 18 }));
    ls_tensor *z = ls_linear(ls_sum(ls_relu(all), 2), "head", CLASSES);
    ls_minimize(g, ls_cross_entropy(z, ls_input(g, "label")), NULL);
}

static void test_too_much(void **state)
{
    (void)state;
    ls_model *model;
    ls_dataset *data = make_data();
    assert_ok(ls_model_create(world, pairs, NULL, &model));
    ls_run_options options = { .batch_size = BATCH, .name = "much", .runs_dir = folder };
    ls_run_result result;
    assert_fails(ls_fit(model, data, NULL, &options, &result), LS_ERR_MEMORY, "activations take ");
    ls_model_destroy(model);
    ls_dataset_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_prediction),
                                        cmocka_unit_test(test_a_step_takes_nothing),
                                        cmocka_unit_test(test_too_much) };
    return cmocka_run_group_tests(tests, begin, end);
}
