/* Into how many micro-batches a batch is cut. The number is a property of the run, not of the
 * machine: every choice here serves to keep it once it has been made. */
#include "run/micro_batches.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static ls_status begin(const ls__micro_batches_request *r, int *out)
{
    if (r->requested != 0 && r->requested < r->world_size)
        return ls_fail(LS_ERR_CONFIG,
                       "%s is fewer than the %d devices, and each needs one: use --devices %d, or "
                       "--micro-batches %d",
                       r->label, r->world_size, r->requested, r->world_size);
    *out = r->requested ? r->requested : r->world_size;
    return LS_OK;
}

ls_status ls__micro_batches_choose(const ls__micro_batches_request *request, int *out,
                                   bool *changed)
{
    *changed = false;
    if (request->recorded == 0) return begin(request, out);
    /* Whoever resumes repeats the first command line: a number that was overtaken by more devices
     * since then must not undo that, so only a larger one counts. */
    int wanted = request->requested > request->recorded ? request->requested : request->recorded;
    *out = wanted < request->world_size ? request->world_size : wanted;
    *changed = *out != request->recorded;
    return LS_OK;
}

void ls__micro_batches_even(int micro_batches, char out[128])
{
    size_t used = 0;
    out[0] = '\0';
    for (int n = 1; n <= micro_batches; n++) {
        if (micro_batches % n != 0) continue;
        bool last = n == micro_batches;
        const char *joint = n == 1 ? "" : last ? " and " : ", ";
        int written = snprintf(out + used, 128 - used, "%s%d", joint, n);
        if (written < 0 || (size_t)written >= 128 - used) return;
        used += (size_t)written;
    }
}
