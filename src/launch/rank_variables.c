/* The environment of a rank: what torchrun, DeepSpeed and JAX programs read, exactly as their own
 * launchers set it; and nothing that would make a library believe that SLURM or an MPI had started
 * it (SLURM_*, OMPI_*, PMIX_*). When we were started by one of those, its words about our own
 * process are taken out, for they would contradict ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "launch/launcher_job.h"

enum { MOST_SET = 48 };

/* A name that ends with '*' stands for all that begin so. */
static const char *const scrubbed[] = {
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_GTIDS",
    "SLURM_STEP_*",
    "SLURM_STEPID",
    "PMI_*",
    "PMI2_*",
    "PMIX_*",
    "OMPI_COMM_WORLD_*",
    "OMPI_UNIVERSE_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "HYDI_CONTROL_FD",
    "MV2_COMM_WORLD_*",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    /* ours, of a launcher around this one */
    "LOCKSTEP__*",
};

bool ls__launcher_scrubs(const char *entry)
{
    size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof scrubbed / sizeof scrubbed[0]; i++) {
        size_t n = strlen(scrubbed[i]);
        bool family = scrubbed[i][n - 1] == '*';
        if (family && length >= n - 1 && strncmp(entry, scrubbed[i], n - 1) == 0) return true;
        if (!family && length == n && strncmp(entry, scrubbed[i], n) == 0) return true;
    }
    return false;
}

static ls_status set(ls__rank_variables *v, const char *name, const char *value)
{
    LS_ASSERT(v->nset < MOST_SET);
    char *entry = ls__format("%s=%s", name, value);
    if (!entry) return LS_ERR_MEMORY;
    v->set[v->nset++] = entry;
    return LS_OK;
}

static ls_status set_number(ls__rank_variables *v, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return set(v, name, text);
}

static ls_status set_unless_there(ls__rank_variables *v, const char *name, const char *value)
{
    const char *there = getenv(name);
    return there && there[0] ? LS_OK : set(v, name, value);
}

void ls__rank_error_path(const char *folder, int rank, char out[LS_PATH_MAX])
{
    snprintf(out, LS_PATH_MAX, "%.4000s/error-%d.json", folder, rank);
}

/* Numbers that every rank gets, in torchrun's, DeepSpeed's and JAX's words. */
static ls_status set_places(ls__rank_variables *v, const ls__launcher_plan *plan, int local)
{
    const ls__node_place *p = &plan->place;
    int rank = p->first_rank + local;
    int local_rank = plan->isolate ? 0 : p->local_rank + local;
    const struct {
        const char *name;
        int value;
    } places[] = {
        { "RANK", rank },
        { "LOCAL_RANK", local_rank },
        { "WORLD_SIZE", p->world_size },
        { "LOCAL_WORLD_SIZE", p->local_size },
        { "GROUP_RANK", p->node },
        { "GROUP_WORLD_SIZE", p->nodes },
        { "NODE_RANK", p->node },
        { "ROLE_RANK", rank },
        { "ROLE_WORLD_SIZE", p->world_size },
        { "LOCAL_SIZE", p->local_size },
        { "CROSS_RANK", p->node },
        { "CROSS_SIZE", p->nodes },
        { "JAX_NUM_PROCESSES", p->world_size },
        { "JAX_PROCESS_ID", rank },
        { "JAX_LOCAL_DEVICE_IDS", local_rank },
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        LS_TRY(set_number(v, places[i].name, places[i].value));
    return LS_OK;
}

static ls_status set_master(ls__rank_variables *v, const ls__launcher_plan *plan, int port)
{
    char coordinator[300];
    const char *address = plan->place.master_addr[0]           ? plan->place.master_addr
                          : plan->nodes.role == LS__NODES_NONE ? plan->master_addr
                          : plan->nodes.host[0]                ? plan->nodes.host
                                                               : "(the first node)";
    const char *format = strchr(address, ':') ? "[%s]:%d" : "%s:%d";
    LS_TRY(set(v, "MASTER_ADDR", address));
    LS_TRY(set_number(v, "MASTER_PORT", port));
    snprintf(coordinator, sizeof coordinator, format, address, port);
    return set(v, "JAX_COORDINATOR_ADDRESS", coordinator);
}

static ls_status set_elastic(ls__rank_variables *v, const ls__launcher_plan *plan,
                             const ls__launcher_start *start, int rank)
{
    char error_file[LS_PATH_MAX];
    LS_TRY(set(v, "ROLE_NAME", plan->role));
    LS_TRY(set(v, "TORCHELASTIC_RUN_ID", plan->run_id[0] ? plan->run_id : "(the run's name)"));
    LS_TRY(set_number(v, "TORCHELASTIC_RESTART_COUNT", start->restarts));
    LS_TRY(set_number(v, "TORCHELASTIC_MAX_RESTARTS", plan->max_restarts));
    /* Rank 0 opens the store itself; with "True" it would look for one in the launcher. */
    LS_TRY(set(v, "TORCHELASTIC_USE_AGENT_STORE", "False"));
    if (!start->folder) return set(v, "TORCHELASTIC_ERROR_FILE", "(a file of the job's own)");
    ls__rank_error_path(start->folder, rank, error_file);
    return set(v, "TORCHELASTIC_ERROR_FILE", error_file);
}

/* A training of ours that was given no name takes the run's, so that another start of it goes on. */
static ls_status set_run_name(ls__rank_variables *v, const ls__launcher_plan *plan)
{
    const char *name = plan->name[0] ? plan->name : plan->place.run_name;
    return name[0] ? set(v, "LOCKSTEP_RUN_NAME", name) : LS_OK;
}

/* What a program may use to say more than an exit code does; docs/launching.md. */
static ls_status set_channels(ls__rank_variables *v, const char *folder, int first, int rank)
{
    char path[LS_PATH_MAX];
    if (!folder) return LS_OK;
    ls__rank_heartbeat_path(folder, rank, path);
    LS_TRY(set(v, "LOCKSTEP_HEARTBEAT", path));
    if (first + rank != 0)
        return set(v, "LOCKSTEP_METRICS", "/dev/null"); /* one rank speaks for all */
    ls__metrics_path(folder, path);
    return set(v, "LOCKSTEP_METRICS", path);
}

/* Which GPUs it sees: docs/launching.md. */
static ls_status set_gpus(ls__rank_variables *v, const ls__launcher_plan *plan, int rank)
{
    const char *visible = plan->isolate ? plan->places[rank].gpu : plan->visible;
    if (!visible[0]) return LS_OK;
    if (plan->by_number) LS_TRY(set(v, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"));
    return set(v, "CUDA_VISIBLE_DEVICES", visible);
}

/* What programs of ours compute on, where that is not what they find: CPUs beside GPUs, simulated
 * ones. */
static ls_status set_devices(ls__rank_variables *v, const ls__launcher_plan *plan)
{
    char text[32];
    if (!plan->kind_said) return LS_OK;
    snprintf(text, sizeof text, "%s:%d", ls__device_kind_name(plan->devices.kind),
             plan->place.local_size);
    return set(v, "LOCKSTEP_DEVICES", text);
}

/* Of something that programs take one of where nothing is said. */
static ls_status set_count(ls__rank_variables *v, const char *name, int count)
{
    char text[16];
    if (count == 1) return LS_OK;
    snprintf(text, sizeof text, "%d", count);
    return set_unless_there(v, name, text);
}

/* Our sitecustomize.py before the path that Python programs were given: what it does stands there. */
static ls_status set_python_path(ls__rank_variables *v)
{
    char folder[LS_PATH_MAX];
    const char *given = getenv("PYTHONPATH");
    if (!ls__plugin_file("lockstep_python", folder)) return LS_OK;
    if (!given || !given[0]) return set(v, "PYTHONPATH", folder);
    char *both = ls__format("%s:%s", folder, given);
    ls_status status = both ? set(v, "PYTHONPATH", both) : LS_ERR_MEMORY;
    ls__free(both);
    return status;
}

/* Lightning and Accelerate ask the machine what there is, not the launcher, and to them all its
 * CPUs are one device: each rank would train alone. Ranks that see one GPU each are to Lightning
 * nodes of one GPU. Its devices times its nodes must be the ranks. */
static ls_status set_frameworks(ls__rank_variables *v, const ls__launcher_plan *plan)
{
    const ls__node_place *place = &plan->place;
    if (place->world_size == 1) return LS_OK;
    int nodes = plan->isolate ? place->world_size : place->world_size / place->local_size;
    if (plan->on_cpus) {
        if (place->local_size > 1) LS_TRY(set_python_path(v));
        LS_TRY(set_count(v, "LT_DEVICES", place->local_size));         /* Fabric */
        LS_TRY(set_count(v, "PL_TRAINER_DEVICES", place->local_size)); /* Trainer's default */
        LS_TRY(set_unless_there(v, "ACCELERATE_USE_CPU", "true"));
    }
    LS_TRY(set_count(v, "LT_NUM_NODES", nodes));
    return set_count(v, "PL_TRAINER_NUM_NODES", nodes);
}

static ls_status set_all(ls__rank_variables *v, const ls__launcher_plan *plan,
                         const ls__launcher_start *start, int rank)
{
    LS_TRY(set_places(v, plan, rank));
    if (plan->place.secret[0]) LS_TRY(set(v, "LOCKSTEP_SECRET", plan->place.secret));
    LS_TRY(set_gpus(v, plan, rank));
    LS_TRY(set_devices(v, plan));
    LS_TRY(set_master(v, plan, start->port));
    LS_TRY(set_elastic(v, plan, start, rank));
    LS_TRY(set_run_name(v, plan));
    LS_TRY(set_frameworks(v, plan));
    LS_TRY(set_channels(v, start->folder, plan->place.first_rank, rank));
    LS_TRY(set_unless_there(v, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"));
    /* Gloo would take the address of the host's name, which is often one of this machine only. */
    if (plan->nodes.interface[0])
        LS_TRY(set_unless_there(v, "GLOO_SOCKET_IFNAME", plan->nodes.interface));
    LS_TRY(set_unless_there(v, "PYTHONUNBUFFERED", "1"));
    int cpus = CPU_COUNT(&plan->places[rank].cpus), threads = plan->devices.threads;
    if (plan->places[rank].bound && !plan->threads_said && cpus < threads) threads = cpus;
    return plan->own_threads ? LS_OK : set_number(v, "OMP_NUM_THREADS", threads);
}

static bool is_set(const ls__rank_variables *v, const char *entry)
{
    size_t length = strcspn(entry, "=") + 1;
    for (int i = 0; i < v->nset; i++)
        if (strncmp(v->set[i], entry, length) == 0) return true;
    return false;
}

ls_status ls__rank_variables_make(const ls__launcher_plan *plan, const ls__launcher_start *start,
                                  int rank, ls__rank_variables *out)
{
    *out = (ls__rank_variables) { 0 };
    int inherited = 0, n = 0;
    while (environ[inherited]) inherited++;
    out->set = ls__alloc(MOST_SET, sizeof *out->set);
    out->envp = ls__alloc((size_t)inherited + MOST_SET + 1, sizeof *out->envp);
    ls_status status = out->set && out->envp ? set_all(out, plan, start, rank) : LS_ERR_MEMORY;
    if (status != LS_OK) {
        ls__rank_variables_free(out);
        return status;
    }
    for (int i = 0; i < inherited; i++)
        if (!ls__launcher_scrubs(environ[i]) && !is_set(out, environ[i]))
            out->envp[n++] = environ[i];
    memcpy(out->envp + n, out->set, (size_t)out->nset * sizeof *out->set);
    return LS_OK;
}

void ls__rank_variables_free(ls__rank_variables *v)
{
    for (int i = 0; i < v->nset; i++) ls__free(v->set[i]);
    ls__free(v->set);
    ls__free(v->envp);
    *v = (ls__rank_variables) { 0 };
}
