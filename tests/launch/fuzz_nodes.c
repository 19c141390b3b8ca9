/* Fuzz entry: texts that name machines, and frames between launchers. The first byte says which. What
 * is read must keep its limits, and a frame that was read is written as it came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "launch/node_frame.h"
#include "launch/node_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void nodes_check(bool holds)
{
    if (!holds) abort();
}

static void check_hosts(ls_status status, ls__hosts *hosts)
{
    nodes_check(status == LS_OK || hosts->count == 0);
    nodes_check(hosts->count <= LS__NODES_MAX);
    for (int i = 0; i < hosts->count; i++) {
        const ls__host *h = &hosts->hosts[i];
        nodes_check(ls__host_is_good(h->name, strlen(h->name)));
        nodes_check(h->slots >= 0 && h->slots <= LS__SLOTS_MAX);
    }
    ls__hosts_free(hosts);
}

static void feed_text(char which, const char *text, size_t nbytes)
{
    ls__hosts hosts;
    char host[LS__NODE_NAME_MAX + 1], secret[260];
    int port;
    switch (which) {
    case 'n':
        check_hosts(ls__nodelist_parse(text, &hosts), &hosts);
        break;
    case 'h':
        check_hosts(ls__hosts_parse("--hosts", text, &hosts), &hosts);
        break;
    case 'f':
        check_hosts(ls__hostfile_parse("hosts", text, nbytes, &hosts), &hosts);
        break;
    case 'j':
        if (ls__join_parse(text, host, &port, secret) == LS_OK)
            nodes_check(port > 0 && port < 65536 && host[0] && secret[0] && strlen(secret) < 256);
        break;
    case 't':
        for (int i = 0; i < 4; i++) nodes_check(ls__tasks_of(text, i) >= 0);
        break;
    default:
        break;
    }
}

static void read_documents(const ls__node_frame *frame)
{
    ls__node_join join;
    ls__node_place place;
    ls__end end;
    char host[LS__NODE_NAME_MAX + 1];
    int64_t began;
    if (frame->type == LS__NODE_JOIN && ls__node_join_read(frame, &join) == LS_OK)
        nodes_check(join.size > 0 && join.port > 0 && join.port < 65536);
    if (frame->type == LS__NODE_PLACE && ls__node_place_read(frame, &place) == LS_OK)
        nodes_check(place.first_rank < place.world_size && place.node < place.nodes);
    if (frame->type == LS__NODE_FAILED && ls__node_end_read(frame, &end, host, &began) == LS_OK)
        nodes_check(end.rank >= -1 && end.exit_code < 256 && end.signal < 65);
}

static void feed_frames(const uint8_t *data, size_t size)
{
    while (size > 0) {
        ls__node_frame frame;
        size_t used;
        ls__bytes again = { 0 };
        if (ls__node_frame_parse(data, size, LS__NODE_FRAME_MAX, &frame, &used) != LS_OK ||
            used == 0)
            return;
        nodes_check(used <= size && used <= LS__NODE_FRAME_MAX);
        read_documents(&frame);
        if (ls__node_frame_append(&again, &frame) == LS_OK)
            nodes_check(again.end == used && memcmp(again.data, data, used) == 0);
        ls__bytes_free(&again);
        data += used;
        size -= used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (data[0] == 'b') {
        feed_frames(data + 1, size - 1);
        return 0;
    }
    char *text = ls__alloc(size, 1);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    feed_text((char)data[0], text, size - 1);
    ls__free(text);
    return 0;
}
