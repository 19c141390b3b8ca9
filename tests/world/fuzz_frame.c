/* A stream of bytes as frames: parsed in a copy of exactly its size, each frame written again and
 * compared, and handed to a core as a request, or read as an end of a job. */
#include <stdlib.h>
#include <string.h>

#include "world/end_frame.h"
#include "world/store_core.h"

static void ignore_reply(void *client, const ls__frame *reply)
{
    (void)client;
    if (reply->type != LS__FRAME_REPLY) abort();
}

static void write_again(const ls__frame *frame, const uint8_t *data, size_t used)
{
    uint8_t *again = malloc(used);
    if (!again || ls__frame_size(frame) != used) abort();
    ls__frame_write(frame, again);
    if (memcmp(again, data, used) != 0) abort();
    free(again);
    char text[64];
    ls__frame_text(frame, text, sizeof text);
    if (strlen(text) >= sizeof text) abort();
}

/* What could be read is within its limits, can be told in words, and is the same when told again. */
static void read_end(const ls__frame *frame)
{
    char value[LS__END_FRAME_VALUE], text[LS__REPORT_TEXT];
    ls__end end, again;
    ls__frame told;
    if (ls__end_frame_read(frame, 4, &end) != LS_OK) return;
    if (end.rank < -1 || end.rank >= 4) abort();
    ls__report_text(
        &(ls__report) { .end = end, .size = 4, .step = end.step_told, .checkpoint = "" }, text);
    ls__end_frame(&end, value, &told);
    if (ls__end_frame_read(&told, 4, &again) != LS_OK) abort();
    if (again.kind != end.kind || strcmp(again.host, end.host) != 0 ||
        strcmp(again.said, end.said) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    ls__core *core;
    if (ls__core_create(&core) != LS_OK) abort();
    size_t at = 0, used;
    ls__frame frame;
    while (ls__frame_parse(data + at, nbytes - at, &frame, &used) == LS_OK && used > 0) {
        write_again(&frame, data + at, used);
        if (frame.type <= LS__FRAME_CANCEL) ls__core_request(core, core, ignore_reply, 3, &frame);
        if (frame.type == LS__FRAME_ENDED) read_end(&frame);
        at += used;
    }
    ls__core_forget(core, core);
    ls__core_destroy(core);
    return 0;
}
