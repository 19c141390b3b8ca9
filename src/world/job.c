/* A job's state. The rules that decide what a job's end is called live here and nowhere else, so
 * that a supervised job and one whose ranks were started by others end alike. */
#include "world/job.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

static const double one_request = 1.0; /* signals within so many seconds are one request */

ls_status ls__job_begin(ls__job *job, int size, int local_size, double grace,
                        const ls__server_hooks *hooks)
{
    *job = (ls__job) { .size = size, .grace = grace };
    job->end.rank = -1;
    ls_status status = LS_ERR_MEMORY;
    job->ranks = ls__alloc((size_t)size, sizeof *job->ranks);
    if (!job->ranks) goto failed;
    LS_TRY_GOTO(ls__shm_create(local_size, &job->shm), status, failed);
    LS_TRY_GOTO(ls__board_create(size, &job->board), status, failed);
    LS_TRY_GOTO(ls__server_create(size, hooks, &job->server), status, failed);
    return LS_OK;
failed:
    ls__job_end(job);
    return status;
}

void ls__job_end(ls__job *job)
{
    ls__server_destroy(job->server);
    ls__board_destroy(job->board);
    ls__shm_destroy(job->shm);
    ls__free(job->ranks);
    job->server = NULL;
    job->board = NULL;
    job->shm = NULL;
    job->ranks = NULL;
}

static bool is_victim(const ls__end *end)
{
    return end->kind == LS__END_STATUS && end->status == LS_ERR_PEER;
}

bool ls__job_end_is_victim(const ls__job *job)
{
    return is_victim(&job->end);
}

void ls__job_fail(ls__job *job, const ls__end *end)
{
    if (job->stop_now) return;
    bool first = !job->failing;
    if (!first && (!is_victim(&job->end) || is_victim(end))) return;
    job->end = *end;
    if (!end->host[0] && end->rank >= 0) {
        snprintf(job->end.host, sizeof job->end.host, "%s", job->host);
        job->end.step_told = ls__board_step(job->board, end->rank);
    }
    if (!first) return;
    job->failing = true;
    job->failed_at = ls__now();
    ls__shm_poison(job->shm, end->rank);
    char text[LS__REPORT_TEXT];
    ls__report_text(
        &(ls__report) { .end = job->end, .size = job->size, .step = -1, .checkpoint = "" }, text);
    ls__server_broadcast(job->server, &(ls__frame) { .type = LS__FRAME_POISON,
                                                     .number = end->rank,
                                                     .value = text,
                                                     .nbytes = strlen(text) });
}

/* A path that a rank told, copied; clean, because it ends up in logs and reports. */
static void keep_path(const ls__frame *frame, char out[LS_PATH_MAX])
{
    ls__frame_text(frame, out, LS_PATH_MAX);
    ls__clean_text(out);
}

void ls__job_frame(ls__job *job, int rank, const ls__frame *frame)
{
    ls__job_rank *r = &job->ranks[rank];
    ls__end end = { .rank = rank };
    switch (frame->type) {
    case LS__FRAME_GOODBYE:
        r->goodbye = true;
        r->goodbye_code = (int)(frame->number & 0xff);
        break;
    case LS__FRAME_FAILED:
    case LS__FRAME_ABORT:
        r->failed = true;
        end.kind = frame->type == LS__FRAME_FAILED ? LS__END_STATUS : LS__END_ABORT;
        end.status = frame->status == LS_OK ? LS_ERR_INTERNAL : frame->status;
        if (frame->number > 0 && frame->number <= job->size) end.rank = (int)frame->number - 1;
        end.joining = job->njoined < job->size;
        if (end.joining && end.status == LS_ERR_TIMEOUT)
            end.rank = -1; /* those who came are well */
        ls__frame_text(frame, end.said, sizeof end.said);
        ls__job_fail(job, &end);
        break;
    case LS__FRAME_SIGNAL:
        ls__job_request_stop(job, (int)(frame->number & 0x7f));
        break;
    case LS__FRAME_PROGRESS:
        ls__frame_text(frame, job->progress, sizeof job->progress);
        job->new_progress = true;
        break;
    case LS__FRAME_CHECKPOINT:
        keep_path(frame, job->checkpoint);
        break;
    case LS__FRAME_FOLDER:
        if (job->folder[0]) break;
        ls__frame_text(frame, job->folder, sizeof job->folder); /* as it is: logs are put there */
        job->new_folder = true;
        break;
    default:
        break;
    }
}

void ls__job_request_stop(ls__job *job, int signal)
{
    double now = ls__now();
    char name[32];
    if (job->failing || job->stop_now) return;
    if (!job->stop_signal) {
        job->stop_signal = signal;
        job->stop_at = now;
        ls__shm_request_stop(job->shm, signal);
        ls__log(LS__LOG_INFO, "%s: stopping at the next step%s", ls__signal_name(signal, name),
                signal == SIGINT ? "; once more, a second later, to stop now" : "");
    } else if (now - job->stop_at > one_request) {
        job->stop_now = true;
        job->end = (ls__end) { .kind = LS__END_SECOND, .rank = -1, .signal = signal };
        ls__shm_poison(job->shm, -1);
    }
}

double ls__job_deadline(const ls__job *job)
{
    bool waiting = job->stop_signal && !job->stop_now && !job->failing && job->grace >= 0;
    return waiting ? job->stop_at + job->grace : -1;
}

void ls__job_tick(ls__job *job)
{
    double deadline = ls__job_deadline(job);
    if (deadline < 0 || ls__now() < deadline) return;
    job->stop_now = true;
    job->end = (ls__end) {
        .kind = LS__END_GRACE_OVER, .rank = -1, .signal = job->stop_signal, .grace = job->grace
    };
    ls__shm_poison(job->shm, -1);
}

void ls__job_exited(ls__job *job, int rank, int exit_code, int signal, bool out_of_memory)
{
    ls__job_rank *r = &job->ranks[rank];
    ls__end end = { .rank = rank, .exit_code = exit_code, .signal = signal };
    if (job->stop_now) return;
    if (job->failing && job->end.rank == rank && r->failed) {
        if (!signal) job->end.exit_code = exit_code; /* main may choose another one than ls_check */
        return;
    }
    if (job->failing && !signal && exit_code == ls__exit_code(LS_ERR_PEER)) return; /* a victim */
    if (signal) {
        end.kind = LS__END_SIGNAL;
        end.out_of_memory = out_of_memory;
    } else if (r->goodbye && (exit_code == 0 || exit_code == r->goodbye_code)) {
        return;
    } else {
        end.kind = exit_code == 0 ? LS__END_EARLY : LS__END_EXIT;
    }
    ls__job_fail(job, &end);
}

void ls__job_conclude(ls__job *job)
{
    if (job->failing || job->stop_now) return;
    int code = 0;
    for (int r = 0; r < job->size && code == 0; r++) code = job->ranks[r].goodbye_code;
    job->end = (ls__end) { .rank = -1, .kind = LS__END_FINISHED };
    if (code == 75 || code == 130) {
        int signal = job->stop_signal ? job->stop_signal : code == 130 ? SIGINT : SIGTERM;
        job->end = (ls__end) { .rank = -1, .kind = LS__END_STOPPED, .signal = signal };
    }
}
