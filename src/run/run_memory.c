/* What a run will need: told in its first lines, and kept beside the peak that is measured at its
 * end.
 *
 * Everything large is allocated before the first step, so the prediction is a sum: what the process
 * holds when the run is created (program, libraries, data in memory), and what the run adds. It is
 * about one rank's process, as the measured peak is: memory shared by ranks counts where a rank
 * touches it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "run/run_state.h"
#include "run/space_state.h"

static int64_t resident_bytes(void)
{
    long long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
    fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

void ls__run_memory_begin(ls_run *run)
{
    run->memory = (ls__run_memory) { .resident = resident_bytes() };
}

/* With saves by the clock there is a copy to write from, and one for a best checkpoint. */
bool ls__run_saves(const ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    if (o->save_every.steps != LS_NONE) return true;
    for (int i = 0; i < run->ndeclared; i++)
        if (run->best.monitor && strcmp(run->declared[i].name, run->best.monitor) == 0)
            return o->validate_every.steps != LS_NONE;
    return false;
}

/* What a device has of the parameters: its training state, or copies of the host's. */
static int64_t device_state(const ls_space *space)
{
    if (space->resident) return space->table->nbytes(space->resident);
    return 2 * space->count * (int64_t)sizeof(float); /* and gradients */
}

static void plan_device(const ls_run *run, const ls__model_memory *model, ls__run_memory *m)
{
    m->device_state = device_state(run->space);
    m->device = m->device_state + model->activations + model->batches;
    /* A simulated one's is this process's, too. */
    if (ls__world_devices(run->world)->kind == LS__DEVICE_SIM) m->predicted += m->device;
}

void ls__run_memory_plan(ls_run *run, const ls__model_memory *model)
{
    const ls_space *space = run->space;
    ls__run_memory *m = &run->memory;
    int64_t size = run->size, all = ls__exchange_gradient_bytes(space->exchange);
    int64_t params = space->count * (int64_t)sizeof(float);
    m->parameters = params + (ls__space_halves(space) ? params / 2 : 0);
    m->gradients_of_all = all;
    /* its own, and of the others' what it sums */
    m->gradients = all / size + (all - all / size) / size;
    m->optimizer = space->state_count * (int64_t)sizeof(float) * space->nstates;
    m->optimizer_of_all = params * space->nstates;
    if (space->resident) { /* the host has the parameters, and states to save from */
        m->gradients = m->gradients_of_all = m->optimizer_of_all = 0;
        if (!ls__run_saves(run)) m->optimizer = 0;
    }
    m->snapshot = ls__run_saves(run) ? ls__checkpointer_bytes(run->checkpointer) : 0;
    m->batches = ls__loader_bytes(run->loader);
    m->activations = model->activations;
    m->predicted = m->resident + m->parameters + m->gradients + m->optimizer + m->snapshot +
                   m->batches + (model->on_device ? 0 : m->activations);
    if (model->on_device) plan_device(run, model, m);
}

char *ls__megabytes(int64_t nbytes, char out[32])
{
    double mb = (double)nbytes * 1e-6;
    snprintf(out, 32, mb < 9.95 ? "%.1f MB" : "%.0f MB", mb);
    return out;
}

void ls__run_memory_tell(const ls_run *run)
{
    const ls__run_memory *m = &run->memory;
    char flat[32], activations[32], snapshot[32], copies[64] = "";
    const char *of_all = run->size > 1 ? " of all devices" : "";
    int64_t all = m->parameters + m->gradients_of_all + m->optimizer_of_all;
    ls__megabytes(run->space->resident ? m->device_state * run->size : all, flat);
    ls__megabytes(m->activations, activations);
    if (m->snapshot)
        snprintf(copies, sizeof copies, ", %s to save from", ls__megabytes(m->snapshot, snapshot));
    ls__log(LS__LOG_INFO,
            "memory: %s for parameters, gradients and optimizer%s, %s for activations%s%s", flat,
            of_all, activations, copies, run->size > 1 ? " on each" : "");
}
