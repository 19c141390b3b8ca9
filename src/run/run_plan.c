/* Which samples this rank reads, as a pure function of how many batches it has asked for: the
 * loader's threads run ahead of the loop without being told anything. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "run/run_state.h"
#include "run/space_state.h"

static ls_status make_share(const ls__run_plan *plan, int64_t samples, ls__share_plan *out)
{
    out->micro_batches = ls__alloc((size_t)(plan->end - plan->begin), sizeof *out->micro_batches);
    if (!out->micro_batches) return LS_ERR_MEMORY;
    for (int s = plan->begin; s < plan->end; s++) {
        int64_t begin, end;
        ls__cut_micro_batch(&plan->cut, samples, s, &begin, &end);
        if (end > begin) out->micro_batches[out->count++] = s;
    }
    return LS_OK;
}

ls_status ls__run_plan_make(ls_run *run)
{
    ls__run_plan *plan = &run->plan;
    const ls_run_options *o = &run->settings.options;
    plan->cut = (ls__cut) { o->batch_size, o->norm_group, run->micro_batches };
    ls__exchange_leaves(run->space->exchange, &plan->begin, &plan->end);
    plan->position = run->position;
    plan->samples = run->span.samples;
    plan->steps = run->span.steps == INT64_MAX ? INT64_MAX : run->span.steps - run->step;
    LS_TRY(make_share(plan, o->batch_size, &plan->whole));
    int64_t left = plan->samples - plan->position; /* a short step is the last one */
    int64_t rest = plan->samples == INT64_MAX ? 0 : left % o->batch_size;
    return make_share(plan, rest, &plan->last);
}

void ls__run_plan_free(ls__run_plan *plan)
{
    ls__free(plan->whole.micro_batches);
    ls__free(plan->last.micro_batches);
    *plan = (ls__run_plan) { 0 };
}

bool ls__run_plan_batch(void *user, int64_t k, int64_t *begin, int64_t *count)
{
    const ls__run_plan *plan = user;
    int64_t batch = plan->cut.batch, left = plan->samples - plan->position;
    int64_t whole_steps = plan->samples == INT64_MAX ? INT64_MAX : left / batch;
    if (whole_steps > plan->steps) whole_steps = plan->steps;
    int64_t step, samples = batch;
    const ls__share_plan *share = &plan->whole;
    int64_t ahead = share->count ? k / share->count : whole_steps;
    if (ahead < whole_steps) {
        step = ahead;
        k %= share->count;
    } else {
        k -= whole_steps * share->count;
        step = whole_steps;
        samples = left % batch;
        share = &plan->last;
        if (step >= plan->steps || k >= share->count) return false;
    }
    int64_t end;
    ls__cut_micro_batch(&plan->cut, samples, share->micro_batches[k], begin, &end);
    *count = end - *begin;
    *begin += plan->position + step * batch;
    return true;
}

static void add_size(int64_t samples, int64_t sizes[LS__BATCH_SIZES_MAX], int *n)
{
    int at = *n;
    for (int i = 0; i < *n; i++)
        if (sizes[i] == samples) return;
    if (samples == 0 || *n == LS__BATCH_SIZES_MAX) return;
    for (; at > 0 && sizes[at - 1] < samples; at--) sizes[at] = sizes[at - 1];
    sizes[at] = samples;
    *n += 1;
}

int ls__run_batch_sizes(const ls_run *run, int64_t sizes[LS__BATCH_SIZES_MAX])
{
    const ls__run_plan *plan = &run->plan;
    int64_t batch = plan->cut.batch, left = plan->samples - plan->position;
    int n = 0;
    for (int s = plan->begin; s < plan->end; s++) {
        int64_t begin, end;
        ls__cut_micro_batch(&plan->cut, left < batch ? left : batch, s, &begin, &end);
        add_size(end - begin, sizes, &n);
    }
    return n;
}
