/* Which variables say that this process is a rank. Variables survive in shells and job scripts long
 * after the launcher that set them, so a place is taken from them only when all five are there and
 * agree; what is incomplete is named and ignored, what contradicts itself is an error. */
#include "world/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

static const char join_name[] = "LOCKSTEP__JOIN", folder_name[] = "LOCKSTEP__FOLDER";

static const char join_format[] =
    "1 rank=%d size=%d socket=%d memory=%d board=%d restarts=%d "
    "terminal=%d crowded=%d started=%la kind=%d threads=%d pin=%d device=%d "
    "text=%63[^|]|%95[^|]|%n";

char *ls__environment_for_child(const ls__place *p)
{
    return ls__format("%s=1 rank=%d size=%d socket=%d memory=%d board=%d restarts=%d terminal=%d "
                      "crowded=%d started=%a kind=%d threads=%d pin=%d device=%d text=%s|%s|",
                      join_name, p->rank, p->size, p->socket_fd, p->memory_fd, p->board_fd,
                      p->restarts, p->terminal, p->crowded, p->started, (int)p->plan.kind,
                      p->plan.threads, p->plan.pin,
                      p->plan.picks.count > 0 ? ls__device_of(&p->plan, p->rank) : -1, p->plan.text,
                      p->plan.hint[0] ? p->plan.hint : "-");
}

static ls_status read_join(const char *text, ls__place *p)
{
    int terminal = 0, crowded = 0, kind = 0, pin = 0, device = 0, used = -1;
    int n = sscanf(text, join_format, &p->rank, &p->size, &p->socket_fd, &p->memory_fd,
                   &p->board_fd, &p->restarts, &terminal, &crowded, &p->started, &kind,
                   &p->plan.threads, &pin, &device, p->plan.text, p->plan.hint, &used);
    bool good = n == 15 && device < LS__PICKS_MAX && (device < 0 || p->size <= LS__PICKS_MAX) &&
                kind >= LS__DEVICE_CPU && kind <= LS__DEVICE_SIM && used == (int)strlen(text) &&
                p->size >= 1 && p->size <= LS__DEVICES_MAX && p->rank >= 0 && p->rank < p->size &&
                p->socket_fd > 2 && p->memory_fd > 2 && p->board_fd > 2 && p->plan.threads >= 1 &&
                p->restarts >= 0;
    if (!good)
        return ls_fail(LS_ERR_CONFIG, "the variable %s is not one that lockstep set; unset it",
                       join_name);
    if (strcmp(p->plan.hint, "-") == 0) p->plan.hint[0] = '\0';
    p->by = LS__STARTED_BY_US;
    p->local_rank = p->rank;
    p->terminal = terminal;
    p->crowded = crowded;
    p->plan.pin = pin;
    p->plan.kind = (ls__device_kind)kind;
    p->plan.count = p->size;
    if (device >= 0) {
        p->plan.picks.count = p->size;
        p->plan.picks.device[p->rank] = (int16_t)device;
    }
    return LS_OK;
}

enum { RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, NVARIABLES };
static const char *const names[NVARIABLES] = { "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR",
                                               "MASTER_PORT" };

static void append(char *list, size_t limit, const char *format, const char *name,
                   const char *value)
{
    size_t used = strlen(list);
    snprintf(list + used, limit - used, format, used > 0 ? ", " : "", name, value);
}

static void report_incomplete(const char *const values[NVARIABLES])
{
    char there[400] = "", missing[200] = "";
    for (int i = 0; i < NVARIABLES; i++) {
        if (values[i])
            append(there, sizeof there, "%s%s=%.60s", names[i], values[i]);
        else
            append(missing, sizeof missing, "%s%s%s", names[i], "");
    }
    ls__log(LS__LOG_INFO, "ignored from the environment: %s; not set: %s", there, missing);
}

static ls_status read_number(const char *name, const char *text, int low, int high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment's %s=%.60s is not a whole number in [%d, %d]; correct or "
                       "unset it",
                       name, text, low, high);
    *out = (int)value;
    return LS_OK;
}

static ls_status check_local_size(const ls__place *p)
{
    const char *text = getenv("LOCAL_WORLD_SIZE");
    int local_size = 0;
    if (!text) return LS_OK;
    LS_TRY(read_number("LOCAL_WORLD_SIZE", text, 1, INT_MAX, &local_size));
    if (local_size > p->size || p->local_rank >= local_size)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment contradicts itself: LOCAL_RANK=%d, LOCAL_WORLD_SIZE=%d, "
                       "WORLD_SIZE=%d",
                       p->local_rank, local_size, p->size);
    if (local_size < p->size)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%d ranks of which %d are on this machine: several machines need an engine "
                       "that this version does not have",
                       p->size, local_size);
    return LS_OK;
}

static ls_status read_others(const char *const values[NVARIABLES], ls__place *p)
{
    int port = 0;
    LS_TRY(read_number("WORLD_SIZE", values[WORLD_SIZE], 1, 1 << 20, &p->size));
    LS_TRY(read_number("RANK", values[RANK], 0, INT_MAX, &p->rank));
    LS_TRY(read_number("LOCAL_RANK", values[LOCAL_RANK], 0, INT_MAX, &p->local_rank));
    LS_TRY(read_number("MASTER_PORT", values[MASTER_PORT], 0, 65535, &port));
    if (p->rank >= p->size || p->local_rank >= p->size)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment contradicts itself: RANK=%d and LOCAL_RANK=%d must be "
                       "below WORLD_SIZE=%d",
                       p->rank, p->local_rank, p->size);
    LS_TRY(check_local_size(p));
    const char *run_id = getenv("TORCHELASTIC_RUN_ID");
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
    if (restarts)
        LS_TRY(read_number("TORCHELASTIC_RESTART_COUNT", restarts, 0, INT_MAX, &p->restarts));
    snprintf(p->job, sizeof p->job, "%.80s:%d %.80s %d", values[MASTER_ADDR], port,
             run_id ? run_id : "-", p->restarts);
    p->world_of_one = p->size == 1;
    p->by = p->world_of_one ? LS__STARTED_ALONE : LS__STARTED_BY_OTHERS;
    return LS_OK;
}

ls_status ls__environment_read(ls__place *out)
{
    memset(out, 0, sizeof *out);
    out->size = 1;
    const char *join = getenv(join_name);
    if (join) {
        ls_status status = read_join(join, out);
        unsetenv(join_name);
        const char *folder = getenv(folder_name);
        snprintf(out->folder, sizeof out->folder, "%s", folder ? folder : "");
        unsetenv(folder_name);
        return status;
    }
    const char *values[NVARIABLES];
    int nset = 0;
    for (int i = 0; i < NVARIABLES; i++) {
        values[i] = getenv(names[i]);
        if (values[i] && !values[i][0]) values[i] = NULL;
        nset += values[i] != NULL;
    }
    if (nset == 0) return LS_OK;
    if (nset < NVARIABLES) {
        report_incomplete(values);
        return LS_OK;
    }
    return read_others(values, out);
}

void ls__environment_set_folder(const char *folder)
{
    setenv(folder_name, folder, 1);
}

void ls__openmp_variables(int threads, bool crowded, ls__variable out[LS__OPENMP_VARIABLES])
{
    /* GNU's spin count is in rounds of one pause instruction, which takes 3 to 50 ns depending on
     * the CPU: at most 50 us. LLVM's block time is in milliseconds, so the only short one is 0. */
    static const char *const omp_names[LS__OPENMP_VARIABLES] = {
        "OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"
    };
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    const char *values[LS__OPENMP_VARIABLES] = { count, "false", "passive", crowded ? "0" : "1000",
                                                 "0" };
    for (int i = 0; i < LS__OPENMP_VARIABLES; i++) {
        out[i].name = omp_names[i];
        snprintf(out[i].value, sizeof out[i].value, "%s", values[i]);
    }
}
