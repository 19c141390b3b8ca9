/* Which variables say that this process is a rank. Variables survive in shells and job scripts long
 * after the launcher that set them, so a place is taken from a set of them only when it is complete
 * and agrees with itself; what is incomplete is named and ignored, what contradicts itself is an
 * error. The innermost launcher counts: torchrun before MPI before SLURM. */
#include "world/environment_sets.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

static const char join_name[] = "LOCKSTEP__JOIN", folder_name[] = "LOCKSTEP__FOLDER",
                  secret_name[] = "LOCKSTEP_SECRET", run_name[] = "LOCKSTEP_RUN_NAME";

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
    p->local_size = p->size;
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

const char *ls__variable_get(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

ls_status ls__variable_number(const char *name, int low, int high, int *out)
{
    const char *text = ls__variable_get(name);
    char *end;
    errno = 0;
    long value = text ? strtol(text, &end, 10) : -1;
    if (!text || errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment's %s=%.60s is not a whole number in [%d, %d]; correct or "
                       "unset it",
                       name, text ? text : "", low, high);
    *out = (int)value;
    return LS_OK;
}

ls_status ls__place_check(const ls__place *p, const ls__place_names *names)
{
    if (p->rank >= p->size || p->local_rank >= p->size)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment contradicts itself: %s=%d and %s=%d must be below %s=%d",
                       names->rank, p->rank, names->local_rank, p->local_rank, names->size,
                       p->size);
    bool local = p->local_size <= p->size && p->local_rank < p->local_size;
    /* Ranks are counted upwards on every machine; on one alone in whatever order. */
    bool counted = p->local_size == p->size ||
                   (p->local_rank <= p->rank && p->size - p->rank >= p->local_size - p->local_rank);
    if (!local || !counted)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment contradicts itself: %s=%d of %s=%d here, %s=%d of %s=%d",
                       names->local_rank, p->local_rank, names->local_size, p->local_size,
                       names->rank, p->rank, names->size, p->size);
    return LS_OK;
}

ls_status ls__place_master(ls__place *p)
{
    p->found = LS__FOUND_HERE;
    if (p->local_size == p->size) return LS_OK;
    p->found = LS__FOUND_NOWHERE;
    const char *address = ls__variable_get("MASTER_ADDR");
    if (!address || !ls__variable_get("MASTER_PORT")) return LS_OK;
    if (strlen(address) >= sizeof p->address)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment's MASTER_ADDR has %zu bytes; the limit is %zu",
                       strlen(address), sizeof p->address - 1);
    LS_TRY(ls__variable_number("MASTER_PORT", 1, 65535, &p->port));
    snprintf(p->address, sizeof p->address, "%s", address);
    p->found = LS__FOUND_AT_ADDRESS;
    return LS_OK;
}

/* Whoever starts our ranks may have given them a secret. It leaves the environment, so that no program
 * started by a rank has it. */
static ls_status take_secret(ls__place *p)
{
    const char *secret = getenv(secret_name);
    if (!secret) return LS_OK;
    size_t nbytes = strlen(secret);
    if (nbytes < sizeof p->secret) memcpy(p->secret, secret, nbytes + 1);
    unsetenv(secret_name);
    if (nbytes < sizeof p->secret) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "the environment's %s has %zu bytes; the limit is %d",
                   secret_name, nbytes, LS__SECRET_MAX);
}

static void take_run_name(ls__place *p)
{
    const char *name = getenv(run_name);
    if (name && strlen(name) < sizeof p->run_name) strcpy(p->run_name, name);
    unsetenv(run_name);
}

static ls_status read_others(ls__place *out)
{
    ls__place mpi = *out, slurm = *out;
    ls_status from_mpi = ls__environment_mpi(&mpi), from_slurm = LS_OK;
    bool is_mpi = from_mpi != LS_OK || mpi.by == LS__STARTED_BY_OTHERS || mpi.world_of_one;
    if (!is_mpi) from_slurm = ls__environment_slurm(&slurm);
    bool explained = is_mpi || from_slurm != LS_OK || slurm.by == LS__STARTED_BY_OTHERS;
    /* torchrun's own set, if complete, is of a launcher inside the others. */
    ls_status status = ls__environment_torch(explained, out);
    if (status != LS_OK || out->by == LS__STARTED_BY_OTHERS || out->world_of_one) return status;
    if (is_mpi) {
        if (from_mpi == LS_OK) *out = mpi;
        return from_mpi == LS_OK ? LS_OK : ls__environment_mpi(out); /* once more for its text */
    }
    if (from_slurm == LS_OK) *out = slurm;
    return from_slurm == LS_OK ? LS_OK : ls__environment_slurm(out);
}

ls_status ls__environment_read(ls__place *out)
{
    memset(out, 0, sizeof *out);
    out->size = out->local_size = 1;
    LS_TRY(take_secret(out));
    take_run_name(out);
    const char *join = getenv(join_name);
    if (!join) return read_others(out);
    ls_status status = read_join(join, out);
    unsetenv(join_name);
    const char *folder = getenv(folder_name);
    snprintf(out->folder, sizeof out->folder, "%s", folder ? folder : "");
    unsetenv(folder_name);
    return status;
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
