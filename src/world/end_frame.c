/* An end as a frame: rank, status and host in its header, the other numbers as one line of text, what
 * was said behind it. */
#include "world/end_frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

void ls__end_frame(const ls__end *end, char value[LS__END_FRAME_VALUE], ls__frame *out)
{
    int n = snprintf(value, LS__END_FRAME_VALUE, "%d %d %d %d %d %d %lld %a\n%s", (int)end->kind,
                     end->exit_code, end->signal, end->pid, end->joining, end->out_of_memory,
                     (long long)end->step_told, end->grace, end->said);
    *out = (ls__frame) { .type = LS__FRAME_ENDED,
                         .status = end->status,
                         .number = end->rank,
                         .key = end->host,
                         .key_nbytes = strlen(end->host),
                         .value = value,
                         .nbytes = n < LS__END_FRAME_VALUE ? (size_t)n : LS__END_FRAME_VALUE - 1 };
}

ls_status ls__end_frame_read(const ls__frame *frame, int size, ls__end *out)
{
    char text[LS__END_FRAME_VALUE];
    int kind, joining, oom, used = -1;
    long long step;
    *out = (ls__end) { .status = frame->status };
    ls__frame_text(frame, text, sizeof text);
    int n = sscanf(text, "%d %d %d %d %d %d %lld %la%n", &kind, &out->exit_code, &out->signal,
                   &out->pid, &joining, &oom, &step, &out->grace, &used);
    bool good = n == 8 && used > 0 && text[used] == '\n' && kind >= LS__END_FINISHED &&
                kind <= LS__END_SILENT && frame->number >= -1 && frame->number < size &&
                frame->key_nbytes < sizeof out->host && out->exit_code >= 0 &&
                out->exit_code <= 255 && out->signal >= 0 && out->signal <= 127 && step >= -1 &&
                isfinite(out->grace);
    if (!good) return ls_fail(LS_ERR_DATA, "another machine's end of the job cannot be read");
    out->kind = (ls__end_kind)kind;
    out->rank = (int)frame->number;
    out->joining = joining;
    out->out_of_memory = oom;
    out->step_told = step;
    memcpy(out->host, frame->key, frame->key_nbytes);
    ls__clean_text(out->host);
    snprintf(out->said, sizeof out->said, "%s", text + used + 1);
    return LS_OK;
}
