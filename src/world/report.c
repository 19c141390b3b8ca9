/* The report in words and as a document. Everything is decided from one ls__end, so that the exit
 * code, the verdict and the text cannot contradict each other. */
#include "world/report.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

static const struct {
    const char *text, *retry;
} verdicts[] = {
#define VERDICT_ROW(name, text, retry) { text, retry },
    LS__VERDICT_MAP(VERDICT_ROW)
#undef VERDICT_ROW
};

const char *ls__signal_name(int signal, char out[32])
{
    const char *name = sigabbrev_np(signal);
    if (name)
        snprintf(out, 32, "SIG%s", name);
    else
        snprintf(out, 32, "signal %d", signal);
    return out;
}

static ls__verdict verdict_of_status(ls_status status, bool joining)
{
    switch (status) {
    case LS_ERR_ARG:
    case LS_ERR_SHAPE:
    case LS_ERR_CONFIG:
    case LS_ERR_DATA:
    case LS_ERR_UNSUPPORTED:
        return LS__VERDICT_USAGE;
    case LS_ERR_IO:
        return LS__VERDICT_IO;
    case LS_ERR_MEMORY:
        return LS__VERDICT_OUT_OF_MEMORY;
    case LS_ERR_TIMEOUT:
        return joining ? LS__VERDICT_RENDEZVOUS_TIMEOUT : LS__VERDICT_HUNG;
    case LS_ERR_PEER:
    case LS_ERR_DEVICE:
        return LS__VERDICT_NODE_LOST;
    case LS_ERR_MISMATCH:
        return LS__VERDICT_MISMATCH;
    case LS_ERR_DIVERGED:
        return LS__VERDICT_DIVERGED;
    default:
        return LS__VERDICT_INTERNAL;
    }
}

static ls__verdict verdict_of_code(int code)
{
    switch (code) {
    case 2:
        return LS__VERDICT_USAGE;
    case 3:
        return LS__VERDICT_DIVERGED;
    case 69:
        return LS__VERDICT_NODE_LOST;
    case 70:
        return LS__VERDICT_INTERNAL;
    case 74:
        return LS__VERDICT_IO;
    case 76:
        return LS__VERDICT_MISMATCH;
    case 124:
        return LS__VERDICT_HUNG;
    default:
        return LS__VERDICT_FAILED;
    }
}

ls__verdict ls__report_verdict(const ls__end *end)
{
    if (end->out_of_memory) return LS__VERDICT_OUT_OF_MEMORY;
    switch (end->kind) {
    case LS__END_FINISHED:
        return LS__VERDICT_FINISHED;
    case LS__END_STOPPED:
        return end->signal == SIGUSR1 ? LS__VERDICT_PREEMPTED : LS__VERDICT_STOPPED;
    case LS__END_EXIT:
        return end->foreign ? LS__VERDICT_FAILED : verdict_of_code(end->exit_code);
    case LS__END_SIGNAL:
    case LS__END_GRACE_OVER:
    case LS__END_SECOND:
        return LS__VERDICT_SIGNALLED;
    case LS__END_STATUS:
        return verdict_of_status(end->status, end->joining);
    case LS__END_LOST:
    case LS__END_SILENT:
        return LS__VERDICT_NODE_LOST;
    case LS__END_HUNG:
        return LS__VERDICT_HUNG;
    default:
        return LS__VERDICT_FAILED;
    }
}

int ls__report_exit_code(const ls__end *end)
{
    switch (end->kind) {
    case LS__END_FINISHED:
        return 0;
    case LS__END_STOPPED:
        return end->foreign ? end->exit_code : end->signal == SIGINT ? 130 : 75;
    case LS__END_EXIT:
        return end->exit_code;
    case LS__END_SIGNAL:
    case LS__END_GRACE_OVER:
    case LS__END_SECOND:
        return 128 + end->signal;
    case LS__END_STATUS:
        return end->exit_code != 0 ? end->exit_code : ls__exit_code(end->status);
    case LS__END_LOST:
    case LS__END_SILENT:
        return 69;
    case LS__END_HUNG:
        return 124;
    default:
        return 1;
    }
}

/* "at step 37" with a blank before it, or nothing. */
static const char *at_step(const ls__report *report, char out[48])
{
    out[0] = '\0';
    if (report->step >= 0) snprintf(out, 48, " at step %lld", (long long)report->step);
    return out;
}

static void whole_job_text(const ls__report *report, char *out)
{
    const ls__end *end = &report->end;
    char name[32], step[48];
    ls__signal_name(end->signal, name);
    at_step(report, step);
    switch (end->kind) {
    case LS__END_FINISHED:
        snprintf(out, LS__REPORT_TEXT, "finished after %.1f s on %d rank%s", report->seconds,
                 report->size, report->size == 1 ? "" : "s");
        break;
    case LS__END_STOPPED:
        snprintf(out, LS__REPORT_TEXT, "stopped by %s%s%s", name, step,
                 end->foreign ? "" : "; everything is saved");
        break;
    case LS__END_SECOND:
        snprintf(out, LS__REPORT_TEXT, "a second %s ended the job at once%s", name, step);
        break;
    case LS__END_GRACE_OVER:
        snprintf(out, LS__REPORT_TEXT,
                 "the job was asked to stop by %s, had not stopped %g s later and was killed%s",
                 name, end->grace, step);
        break;
    case LS__END_HUNG:
        snprintf(out, LS__REPORT_TEXT, "no rank gave a sign of life for %g s; all were killed",
                 end->grace);
        break;
    default:
        snprintf(out, LS__REPORT_TEXT, "%s", end->said);
    }
}

/* What is wrong before the first step (a flag, a file) is wrong for every rank: which of them was the
 * first to say so would only hide the text. */
static bool names_rank(const ls__report *report)
{
    return report->size > 1 &&
           (report->step >= 0 || ls__report_verdict(&report->end) != LS__VERDICT_USAGE);
}

static void host_of(const ls__report *report, char host[256])
{
    if (report->end.host[0])
        snprintf(host, 256, "%s", report->end.host);
    else if (report->host)
        snprintf(host, 256, "%s", report->host);
    else
        gethostname(host, 255);
}

/* "rank 3"; of a program without the library with what helps to find it. */
static void name_rank(const ls__report *report, char out[384])
{
    const ls__end *end = &report->end;
    char host[256] = "";
    int n = report->size > 1 ? snprintf(out, 384, "rank %d", end->rank)
                             : snprintf(out, 384, "the program");
    bool lost = end->kind == LS__END_LOST && end->pid > 0;
    if (!end->foreign && !end->host[0]) {
        if (lost) snprintf(out + n, 384 - (size_t)n, " (process %d)", end->pid);
        return;
    }
    host_of(report, host);
    if (end->foreign || lost)
        snprintf(out + n, 384 - (size_t)n, " (host %s, process %d)", host, end->pid);
    else
        snprintf(out + n, 384 - (size_t)n, " (host %s)", host);
}

void ls__report_text(const ls__report *report, char out[LS__REPORT_TEXT])
{
    const ls__end *end = &report->end;
    char who[384], step[48], name[32];
    name_rank(report, who);
    at_step(report, step);
    ls__signal_name(end->signal, name);
    if (end->rank < 0) {
        whole_job_text(report, out);
    } else if (end->out_of_memory) {
        snprintf(out, LS__REPORT_TEXT, "%s was killed by the kernel%s: memory ran out", who, step);
    } else if (end->kind == LS__END_SIGNAL) {
        snprintf(out, LS__REPORT_TEXT, "%s was killed by %s (signal %d)%s", who, name, end->signal,
                 step);
    } else if (end->kind == LS__END_EXIT) {
        snprintf(out, LS__REPORT_TEXT, "%s exited with code %d%s%s%s", who, end->exit_code, step,
                 end->said[0] ? ": " : "", end->said);
    } else if (end->kind == LS__END_HUNG) {
        snprintf(out, LS__REPORT_TEXT, "%s gave no sign of life for %g s%s and was killed", who,
                 end->grace, step);
    } else if (end->kind == LS__END_EARLY) {
        snprintf(out, LS__REPORT_TEXT, "%s exited with code 0%s, but without ls_world_finish", who,
                 step);
    } else if (end->kind == LS__END_LOST) {
        snprintf(out, LS__REPORT_TEXT, "%s died%s, or left without ls_world_finish", who, step);
    } else if (end->kind == LS__END_SILENT) {
        snprintf(out, LS__REPORT_TEXT, "nothing has been heard of %s and its machine for %g s%s",
                 who, end->grace, step);
    } else if (end->kind == LS__END_ABORT) {
        snprintf(out, LS__REPORT_TEXT, "%s ended the job%s: %s", who, step, end->said);
    } else if (names_rank(report)) {
        snprintf(out, LS__REPORT_TEXT, "%s failed%s: %s", who, step, end->said);
    } else {
        snprintf(out, LS__REPORT_TEXT, "%s%s%s", step + (step[0] == ' '), step[0] ? ": " : "",
                 end->said);
    }
}

void ls__report_hint(const ls__report *report, char out[512])
{
    ls__verdict verdict = ls__report_verdict(&report->end);
    out[0] = '\0';
    if (report->end.out_of_memory) { /* of others the text says what to do */
        snprintf(out, 512, "fewer %s need less memory",
                 report->end.foreign ? "processes (--nproc-per-node) or a smaller batch"
                                     : "devices or a smaller --batch-size");
    } else if (verdict == LS__VERDICT_SIGNALLED || verdict == LS__VERDICT_FAILED ||
               verdict == LS__VERDICT_NODE_LOST || verdict == LS__VERDICT_HUNG ||
               verdict == LS__VERDICT_STOPPED || verdict == LS__VERDICT_PREEMPTED) {
        if (report->checkpoint[0])
            snprintf(out, 512, "the same command goes on from %.400s", report->checkpoint);
    } else if (verdict == LS__VERDICT_RENDEZVOUS_TIMEOUT) {
        snprintf(out, 512, "start all ranks within --timeout of each other");
    }
}

void ls__clean_text(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p;) {
        int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : (*p & 0xf0) == 0xe0 ? 2 : 3;
        bool good = *p < 0x80 ? *p >= 0x20 || *p == '\t' || *p == '\n' : *p >= 0xc2 && *p < 0xf5;
        good = good && *p != 0x7f;
        for (int i = 1; good && i <= more; i++) good = (p[i] & 0xc0) == 0x80;
        /* overlong forms, surrogates and what is beyond the last code point */
        good = good && !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] >= 0xa0) &&
               !(p[0] == 0xf0 && p[1] < 0x90) && !(p[0] == 0xf4 && p[1] >= 0x90);
        if (good) {
            p += 1 + more;
        } else {
            *p++ = '?';
        }
    }
}

static json_t *or_null(bool there, json_int_t value)
{
    return there ? json_integer(value) : json_null();
}

static json_t *clean_string(const char *text)
{
    char *copy = ls__strdup(text);
    if (!copy) return json_null();
    ls__clean_text(copy);
    json_t *string = json_string(copy);
    ls__free(copy);
    return string;
}

json_t *ls__report_json(const ls__report *report)
{
    const ls__end *end = &report->end;
    ls__verdict verdict = ls__report_verdict(end);
    char text[LS__REPORT_TEXT], hint[512], name[32], host[256] = "", time[32];
    ls__report_text(report, text);
    ls__report_hint(report, hint);
    host_of(report, host);
    ls__wall_text(ls__wall_time(), time);
    bool ours = end->kind != LS__END_EXIT && end->kind != LS__END_SIGNAL &&
                end->kind != LS__END_EARLY && end->kind != LS__END_ABORT;
    bool signalled = end->signal != 0;

    json_t *tail = json_array();
    for (int i = 0; i < report->ntail; i++)
        json_array_append_new(tail, clean_string(report->tail[i]));
    json_t *stacks = report->nstacks > 0 ? json_array() : NULL;
    for (int i = 0; i < report->nstacks; i++)
        json_array_append_new(stacks, clean_string(report->stacks[i]));
    json_t *document = json_object();
    json_object_set_new(document, "schema", json_string("lockstep.report/1"));
    json_object_set_new(document, "verdict", json_string(verdicts[verdict].text));
    json_object_set_new(document, "source", json_string(ours ? "lockstep" : "program"));
    json_object_set_new(document, "exit_code", json_integer(ls__report_exit_code(end)));
    json_object_set_new(document, "retry", json_string(verdicts[verdict].retry));
    json_object_set_new(document, "rank", or_null(end->rank >= 0, end->rank));
    json_object_set_new(document, "host", clean_string(host));
    json_object_set_new(document, "signal", or_null(signalled, end->signal));
    json_object_set_new(document, "signal_name",
                        signalled ? json_string(ls__signal_name(end->signal, name)) : json_null());
    json_object_set_new(document, "step", or_null(report->step >= 0, report->step));
    json_object_set_new(document, "checkpoint",
                        report->checkpoint[0] ? clean_string(report->checkpoint) : json_null());
    json_object_set_new(document, "text", clean_string(text));
    json_object_set_new(document, "hint", hint[0] ? clean_string(hint) : json_null());
    json_object_set_new(document, "tail", tail);
    if (stacks) json_object_set_new(document, "stacks", stacks);
    json_object_set_new(document, "world_size", json_integer(report->size));
    json_object_set_new(document, "restarts", json_integer(report->restarts));
    json_object_set_new(document, "seconds", ls__json_double(report->seconds));
    json_object_set_new(document, "time", json_string(time));
    return document;
}
