/* How a world comes to be: alone, as a rank of a supervisor, or as a rank that somebody else
 * started. Whatever a start costs is paid here by every program, every time: microseconds for one
 * device, one exec for several. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/signals.h"
#include "world/store_server.h"
#include "world/supervisor.h"
#include "world/world_state.h"

/* A second ls_world_init would find neither a place in the environment nor the flags, and start
 * copies of the program, each of which would come to the same line. The mark is the process's,
 * because the process is the rank. */
static atomic_bool was_called;

ls_status ls__world_alloc(ls_world **out)
{
    ls_world *world = ls__alloc(1, sizeof *world);
    *out = world;
    if (!world) return LS_ERR_MEMORY;
    world->size = world->local_size = 1;
    world->peer_fd = world->beat_fd = -1;
    atomic_init(&world->step, -1);
    pthread_mutex_init(&world->lock, NULL);
    return LS_OK;
}

void ls__world_free(ls_world *world)
{
    if (!world) return;
    if (!world->shared) ls__check_set_hook(NULL, NULL);
    ls__comm_destroy(world->comm);
    ls__watcher_stop(world->watcher);
    if (world->peer_fd >= 0) close(world->peer_fd);
    if (world->has_signals) ls__signals_restore();
    ls__store_destroy(world->store);
    if (world->root) ls__local_root_finish(world->root);
    ls__manager_leave(world->manager);
    ls__core_destroy(world->core);
    ls__board_destroy(world->board);
    if (world->beat_fd >= 0) close(world->beat_fd);
    if (world->shared) {
        ls__shared_world_leave(world->shared);
    } else {
        ls__shm_destroy(world->shm);
        ls__nodes_destroy(world->nodes);
    }
    ls__options_free(world->options);
    ls__command_line_free(world->argv);
    pthread_mutex_destroy(&world->lock);
    ls__free(world);
}

ls_status ls__world_set_nodes(ls_world *world, ls__nodes *nodes)
{
    if (!nodes) LS_TRY(ls__nodes_create(&world->size, 1, &nodes));
    world->nodes = nodes;
    world->node = nodes->node_of[world->rank];
    world->local_rank = nodes->local_of[world->rank];
    world->local_size = nodes->local_sizes[world->node];
    return LS_OK;
}

/* A failure of one rank that all have learnt of begins "rank N: " on the others: whoever is first to
 * tell it, the report names the rank that failed. *number: 1 + that rank; 0 = this one. */
static const char *shared_failure(const ls_world *world, const char *text, int64_t *number)
{
    int rank, used = 0;
    bool other = sscanf(text, "rank %d: %n", &rank, &used) == 1 && used > 0 && rank >= 0 &&
                 rank < world->size;
    *number = other ? rank + 1 : 0;
    return other ? text + used : text;
}

/* ls_check is about to end this rank: whoever watches it learns why. True: the text is told. */
static bool on_check(void *user, ls_status status, const char *text)
{
    ls_world *world = user;
    if (ls__store_fd(world->store) < 0) {
        ls__end end = { .kind = LS__END_STATUS, .rank = world->rank, .status = status };
        snprintf(end.said, sizeof end.said, "%s", text);
        ls__world_report(world, &end, false);
        return false;
    }
    fflush(NULL);
    ls__frame frame = { .type = LS__FRAME_FAILED, .status = status };
    text = shared_failure(world, text, &frame.number);
    frame.value = text;
    frame.nbytes = strlen(text);
    bool sent = ls__store_send(world->store, &frame) == LS_OK;
    if (world->root && sent) ls__local_root_reported(world->root);
    return sent && (world->by == LS__STARTED_BY_US || world->root);
}

static ls_status connect_store(ls_world *world, int socket_fd)
{
    ls_status status = ls__store_create_socket(socket_fd, &world->store);
    if (status != LS_OK) {
        close(socket_fd);
        return status;
    }
    world->peer_fd = world->by == LS__STARTED_BY_OTHERS ? ls__peer_pid_fd(socket_fd) : -1;
    return ls__watcher_start(
        &(ls__watcher_options) { .store = world->store,
                                 .shm = world->shm,
                                 .peer_fd = world->peer_fd,
                                 .forward_signals = !world->program.never_launch },
        &world->watcher);
}

static ls_status create_comm(ls_world *world)
{
    const ls__launch *launch = &world->launch;
    const char *engine = "auto";
    if (world->bare) return LS_OK;
    ls__options_string(world->options, "comm", &engine);
    if (world->nodes->count > 1) return ls__connect_nodes(world, engine);
    if (strcmp(engine, "auto") != 0 && strcmp(engine, "shm") != 0)
        return ls_fail(
            LS_ERR_CONFIG,
            "--comm %s: all ranks are on one machine, where they exchange through shared "
            "memory; leave it out",
            engine);
    return ls__comm_shm_create(world->shm,
                               &(ls__comm_shm_options) { .rank = world->rank,
                                                         .size = world->size,
                                                         .timeout_ms = launch->timeout_ms,
                                                         .oversubscribed = launch->crowded },
                               &world->comm);
}

/* A rank that our supervisor started: everything is inherited, nothing is negotiated. */
static ls_status join_supervisor(ls_world *world, const ls__place *place)
{
    prctl(PR_SET_NAME, program_invocation_short_name); /* exec of /proc/self/exe named it "exe" */
    struct stat info;
    if (fstat(place->socket_fd, &info) != 0 || !S_ISSOCK(info.st_mode))
        return ls_fail(LS_ERR_CONFIG, "the variable LOCKSTEP__JOIN is another process's; unset it");
    int fds[3] = { place->socket_fd, place->memory_fd, place->board_fd };
    for (int i = 0; i < 3; i++) fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    world->terminal = place->terminal;
    LS_TRY(ls__world_set_nodes(world, NULL));
    LS_TRY(ls__shm_attach(place->memory_fd, world->size, &world->shm));
    LS_TRY(ls__board_attach(place->board_fd, world->size, &world->board));
    ls__board_set_process(world->board, world->rank, getpid());
    LS_TRY(connect_store(world, place->socket_fd));
    /* A pipe, read in lines: what a rank has printed before it dies shall be there. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigset_t asking; /* blocked by the supervisor until there are handlers */
    sigemptyset(&asking);
    for (int i = 0; i < LS__SIGNALS; i++) sigaddset(&asking, ls__signals[i]);
    pthread_sigmask(SIG_UNBLOCK, &asking, NULL);
    return create_comm(world);
}

static void set_openmp(const ls__launch *launch)
{
    ls__variable variables[LS__OPENMP_VARIABLES];
    ls__openmp_variables(launch->plan.threads, launch->crowded, variables);
    for (int i = 0; i < LS__OPENMP_VARIABLES; i++) setenv(variables[i].name, variables[i].value, 1);
}

/* Ranks that others started may have been given CPUs of their own, or all the same ones. Equal masks
 * of a machine's ranks are divided as a supervisor would; different ones are used as they are. */
static ls_status divide_cpus(ls_world *world)
{
    ls__launch *launch = &world->launch;
    cpu_set_t every = launch->cpus.mask, mine;
    bool equal = true;
    for (int i = 0; i < world->local_size; i++) {
        char key[48], *value;
        size_t nbytes;
        snprintf(key, sizeof key, "world/cpus/%d", ls__nodes_rank(world->nodes, world->node, i));
        LS_TRY(ls__store_get(world->store, key, launch->timeout_ms, &value, &nbytes));
        if (nbytes == sizeof every) {
            cpu_set_t mask;
            memcpy(&mask, value, sizeof mask);
            equal = equal && CPU_EQUAL(&mask, &launch->cpus.mask);
            CPU_OR(&every, &every, &mask);
        }
        ls__free(value);
    }
    int threads = world->local_size * launch->plan.threads;
    launch->crowded = threads > (equal ? launch->cpus.usable : CPU_COUNT(&every));
    launch->plan.pin = launch->plan.pin && equal;
    if (!launch->plan.pin) return LS_OK;
    ls__device_cpus(&launch->plan, &launch->cpus, world->local_rank, &mine);
    sched_setaffinity(0, sizeof mine, &mine); /* a wish */
    return LS_OK;
}

/* A rank that somebody else started. */
static ls_status join_others(ls_world *world, const ls__place *place)
{
    ls__meeting meeting;
    ls_status status = ls__local_meet(place, &world->launch, &meeting);
    world->shm = meeting.shm;
    world->board = meeting.board;
    world->root = meeting.root;
    if (status == LS_OK) {
        status = connect_store(world, meeting.socket_fd);
        meeting.socket_fd = -1;
    }
    if (meeting.socket_fd >= 0) close(meeting.socket_fd);
    LS_TRY(status);
    ls__board_set_process(world->board, world->rank, getpid());
    world->terminal = isatty(STDERR_FILENO);
    LS_TRY(ls__connect_root(world, place));
    LS_TRY(ls__come_together(world, meeting.root_rank));
    LS_TRY(ls__learn_way(world, place, meeting.root_rank));
    if (world->root) ls__local_root_complete(world->root);
    LS_TRY(divide_cpus(world));
    set_openmp(&world->launch);
    return create_comm(world);
}

static ls_status be_alone(ls_world *world)
{
    world->terminal = isatty(STDERR_FILENO);
    LS_TRY(ls__world_set_nodes(world, NULL));
    set_openmp(&world->launch);
    LS_TRY(ls__core_create(&world->core));
    LS_TRY(ls__store_create_direct(world->core, 0, &world->store));
    if (!world->program.never_launch) {
        LS_TRY(ls__signals_alone(world->launch.grace, ls__log_shows(LS__LOG_INFO)));
        world->has_signals = true;
        ls__world_prepare_last_words(world);
    }
    return create_comm(world);
}

/* --help and --version end the program; nothing has been started yet. */
static void answer_questions(const ls_world *world, const char *name)
{
    bool help = ls__options_wants(world->options, "help");
    if (!help && !ls__options_wants(world->options, "version")) return;
    const char *slash = strrchr(name, '/');
    if (slash) name = slash + 1;
    if (help) {
        char *text = ls__options_help(world->options, name, &world->program);
        fputs(text ? text : ls_error_text(), stdout);
        ls__free(text);
    } else {
        printf("%s (lockstep %s)\n", name, ls_version());
    }
    exit(fflush(stdout) == 0 ? 0 : 74);
}

static void set_log(const ls_world *world)
{
    const char *text = "info";
    ls__log_level level = LS__LOG_INFO;
    ls__options_string(world->options, "log-level", &text);
    if (ls__log_parse_level(text, &level)) ls__log_set_level(level);
    ls__log_set_quiet(world->rank != 0);
}

/* Reads the command line and the environment: who this process is and what is asked for. */
static ls_status read_request(ls_world *world, int *argc, char ***argv, ls__place *place)
{
    ls_status where = ls__environment_read(place);
    char text[1024];
    snprintf(text, sizeof text, "%s", where == LS_OK ? "" : ls_error_text());
    world->argv = ls__command_line();
    ls_status parsed = ls__options_parse(argc, argv, &world->program, &world->options);
    if (parsed != LS_OK) {
        char said[1024];
        snprintf(said, sizeof said, "%s", ls_error_text());
        if (argc && argv) ls__launch_guess(*argc, *argv, &world->launch);
        return ls_fail(parsed, "%s", said);
    }
    /* argv[0] as main has it, not as typed: a subcommand's is "lockstep train image". */
    const char *name = argv && *argv && (*argv)[0] ? (*argv)[0] : "program";
    if (!world->program.never_launch) answer_questions(world, name);
    world->by = place->by;
    world->rank = place->rank;
    world->size = place->size;
    world->local_rank = place->local_rank;
    world->local_size = place->local_size;
    snprintf(world->address, sizeof world->address, "%s", place->address);
    world->restarts = place->restarts;
    memcpy(world->restart_folder, place->folder, sizeof world->restart_folder);
    memcpy(world->run_name, place->run_name, sizeof world->run_name);
    set_log(world);
    ls_status status = ls__launch_read(world->options, &world->program, place, &world->launch);
    return where == LS_OK ? status : ls_fail(where, "%s", text);
}

static bool wants_supervisor(const ls_world *world)
{
    return world->by == LS__STARTED_ALONE && !world->program.never_launch &&
           (world->launch.plan.count > 1 || world->launch.max_restarts > 0);
}

static void tell_start(const ls_world *world, const ls__place *place)
{
    ls__options_warn_misspelt(world->options);
    ls__launch_log(&world->launch, world->options, place);
}

/* This process becomes the supervisor; it comes back only when it cannot. */
static ls_status supervise(ls_world *world)
{
    int code;
    LS_TRY(ls__supervise(&world->launch, &code));
    ls__world_free(world);
    exit(code);
}

/* The world could not be made: the report says why. */
static void report_failure(ls_world *world, ls_status status)
{
    ls__end end = { .kind = LS__END_STATUS,
                    .rank = world->rank,
                    .status = status,
                    .joining = world->by == LS__STARTED_BY_OTHERS };
    char text[sizeof end.said];
    if (end.joining && status == LS_ERR_TIMEOUT) end.rank = -1; /* this one came */
    snprintf(text, sizeof text, "%s", ls_error_text());
    snprintf(end.said, sizeof end.said, "%s", text);
    if (world->store && ls__store_fd(world->store) >= 0)
        on_check(world, status, text);
    else if (world->by != LS__STARTED_BY_US)
        ls__world_report(world, &end, false);
    ls_fail(status, "%s", text);
}

/* Descriptors 0, 1 and 2 exist: else a checkpoint or a socket takes their place, and what the program
 * prints goes there. */
static void open_standard_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* lockstep run's, of this rank; programs that a rank starts are not the rank. */
static void open_heartbeat(ls_world *world)
{
    const char *path = getenv("LOCKSTEP_HEARTBEAT");
    if (path && path[0]) world->beat_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    unsetenv("LOCKSTEP_HEARTBEAT");
}

static ls_status init(int *argc, char ***argv, const ls_world_options *options, bool bare,
                      ls_world **out)
{
    *out = NULL;
    ls__place place;
    ls_world *world;
    LS_TRY(ls__world_alloc(&world));
    world->bare = bare;
    if (options) world->program = *options;
    if (atomic_exchange(&was_called, true) && !world->program.never_launch) {
        ls__world_free(world);
        return ls_fail(LS_ERR_UNSUPPORTED, "a program calls ls_world_init once");
    }
    if (!world->program.never_launch) open_standard_streams();
    ls_status status = read_request(world, argc, argv, &place);
    if (status == LS_OK && place.by != LS__STARTED_BY_US && world->rank == 0 &&
        !world->program.one_device && !world->program.never_launch)
        tell_start(world, &place);
    bool usage = status != LS_OK;
    if (status == LS_OK) {
        ls__device_expose(&world->launch.plan);
        if (!wants_supervisor(world)) ls__device_expose_own(&world->launch.plan, world->local_rank);
        if (!wants_supervisor(world) && !world->program.never_launch) open_heartbeat(world);
        if (wants_supervisor(world))
            status = supervise(world);
        else if (place.by == LS__STARTED_BY_US)
            status = join_supervisor(world, &place);
        else if (place.by == LS__STARTED_BY_OTHERS)
            status = join_others(world, &place);
        else
            status = be_alone(world);
    }
    if (status != LS_OK) {
        bool embedded = world->program.never_launch;
        report_failure(world, status);
        ls__world_free(world);
        if (usage && !embedded) ls_check(status); /* prints and exits with 2 */
        return status;
    }
    ls__check_set_hook(on_check, world);
    *out = world;
    return LS_OK;
}

ls_status ls_world_init(int *argc, char ***argv, const ls_world_options *options, ls_world **out)
{
    return init(argc, argv, options, false, out);
}

ls_status ls__world_init_bare(int *argc, char ***argv, const ls_world_options *options,
                              ls_world **out)
{
    return init(argc, argv, options, true, out);
}
