/* Batches copied ahead by the executor, on a simulated GPU: every run computes on its own batch. Under
 * the thread sanitizer each of the two events between the streams that is missing is a race. */
#include "graph/backend.h"
#include "testing.h"

#include <lockstep/nn.h>

enum { ROWS = 16, COLUMNS = 1024, COUNT = ROWS * COLUMNS, BATCHES = 6 };

typedef struct source {
    float data[BATCHES + 1][COUNT];
    void *fields[1];
    int next;  /* that is handed out ahead */
    int asked; /* how often */
} source;

static source from;

static void step(ls_graph *g, void *user)
{
    (void)user;
    ls_output(g, "y", ls_scale(ls_scale(ls_input(g, "x"), 2, 0), 1, 1));
}

static bool ahead(void *user, void *const **fields)
{
    source *s = user;
    s->asked++;
    if (s->next >= BATCHES) return false;
    s->fields[0] = s->data[s->next];
    *fields = s->fields;
    return true;
}

static void check_run(const ls__backend *backend, const ls_graph *g, ls__executable *e,
                      ls__run_context *context, int batch)
{
    const ls__graph_result *results;
    ls_array y;
    void *fields[] = { from.data[batch] };
    context->fields = fields;
    context->batch = batch + 1;
    from.next = batch + 1;
    assert_ok(backend->run(e, context));
    assert_int_equal(ls__graph_results(g, &results), 1);
    assert_ok(backend->read(e, context, results[0].values[0], &y));
    for (int64_t i = 0; i < COUNT; i++)
        if (((float *)y.data)[i] != 2 * from.data[batch][i] + 1)
            fail_msg("batch %d, element %lld", batch, (long long)i);
}

static void every_run_has_its_batch(void **state)
{
    (void)state;
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { COLUMNS } } };
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = ROWS, .fields = fields, .nfields = 1
    };
    const ls__backend *backend;
    ls_graph *g;
    ls__executable *e;
    assert_ok(ls__backend_open("sim", 1, &backend));
    assert_true(backend->copies_ahead);
    for (int b = 0; b < BATCHES; b++)
        for (int64_t i = 0; i < COUNT; i++) from.data[b][i] = (float)(b * 1000 + i % 997);
    assert_ok(ls__graph_build(step, NULL, &options, &g));
    assert_ok(backend->compile(g, &e));
    ls__run_context context = { .ahead = ahead, .ahead_user = &from };
    for (int b = 0; b < BATCHES; b++) check_run(backend, g, e, &context, b);
    assert_int_equal(from.asked, BATCHES);
    check_run(backend, g, e, &context, 1); /* not the one that was announced */
    backend->destroy(e);
    ls__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run_has_its_batch) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
