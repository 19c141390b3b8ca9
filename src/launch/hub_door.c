/* The hub's door: who may join, and as which launcher. Nobody gets further than a short greeting
 * without the secret, and nobody takes a place that is somebody else's. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/hub_parts.h"

enum { TOLD_MAX = 5 };

void ls__visitor_refuse(ls__hub *hub, ls__visitor *v, bool again, const char *why)
{
    char text[LS__ADDRESS_TEXT];
    ls__node_frame frame = { .type = LS__NODE_REFUSED,
                             .numbers = { again },
                             .texts = { ls__node_text_of(why) } };
    if (v->state == LS__VISITOR_JOINED) {
        hub->slots[v->launcher].here = false;
        hub->slots[v->launcher].visitor = NULL;
        hub->here--;
    }
    ls__node_link_send(&v->link, &frame);
    v->state = LS__VISITOR_LEAVING;
    v->since = ls__now();
    if (ls__node_link_waiting(&v->link) == 0) shutdown(v->link.fd, SHUT_WR);
    if (hub->over || again || hub->warned++ >= TOLD_MAX) return;
    ls__address_text((struct sockaddr *)&v->peer, text);
    ls__log(LS__LOG_WARN, "%s was not let in: %s%s", text, why,
            hub->warned == TOLD_MAX ? " (further ones are not told)" : "");
}

static void greet(ls__hub *hub, ls__visitor *v, const ls__node_frame *frame)
{
    const char *secret = hub->options.secret;
    uint8_t code[LS__MAC_BYTES] = { 0 };
    char text[160];
    if (frame->numbers[0] != LS__NODE_PROTOCOL || frame->texts[0].nbytes != LS__NONCE_BYTES) {
        snprintf(text, sizeof text,
                 "the first node has another version of lockstep (protocol %d, not %lld)",
                 LS__NODE_PROTOCOL, (long long)frame->numbers[0]);
        ls__visitor_refuse(hub, v, false, text);
        return;
    }
    memcpy(v->nonce_c, frame->texts[0].data, LS__NONCE_BYTES);
    if (ls__random_bytes(v->nonce_l, LS__NONCE_BYTES) != LS_OK) {
        ls__visitor_refuse(hub, v, true, ls_error_text());
        return;
    }
    if (secret[0]) ls__mac(secret, "listener", v->nonce_c, v->nonce_l, code);
    ls__node_frame answer = { .type = LS__NODE_CHALLENGE,
                              .numbers = { secret[0] != '\0' },
                              .texts = { { (const char *)v->nonce_l, LS__NONCE_BYTES },
                                         { (const char *)code, LS__MAC_BYTES } } };
    ls__node_link_send(&v->link, &answer);
    v->state = LS__VISITOR_ASKED;
}

static void check(ls__hub *hub, ls__visitor *v, const ls__node_frame *frame)
{
    const char *secret = hub->options.secret;
    uint8_t code[LS__MAC_BYTES], given[LS__MAC_BYTES];
    char text[LS__ADDRESS_TEXT], why[256];
    if (secret[0]) {
        bool whole = frame->texts[0].nbytes == LS__MAC_BYTES;
        ls__mac(secret, "caller", v->nonce_c, v->nonce_l, code);
        if (whole) memcpy(given, frame->texts[0].data, LS__MAC_BYTES);
        if (!whole || !ls__mac_equal(code, given)) {
            ls__visitor_refuse(hub, v, false, "it does not know this job's secret");
            return;
        }
    } else if (hub->options.lets_in &&
               !hub->options.lets_in(hub->options.user, (struct sockaddr *)&v->peer)) {
        ls__address_text((struct sockaddr *)&v->peer, text);
        snprintf(
            why, sizeof why,
            "%s is not an address of this job's nodes; give all nodes the same LOCKSTEP_SECRET",
            text);
        ls__visitor_refuse(hub, v, true, why);
        return;
    }
    v->state = LS__VISITOR_KNOWN;
    v->link.limit = LS__NODE_FRAME_MAX;
}

/* --- a slot --- */

/* The one it asks for; the one it had; a free one, of which those that nobody had come first. */
static int choose_slot(const ls__hub *hub, const ls__node_join *join)
{
    int free_slot = -1, left = -1;
    if (join->node_rank >= 0)
        return join->node_rank < hub->options.launchers ? join->node_rank : -1;
    for (int i = 0; i < hub->options.launchers; i++) {
        const ls__slot *s = &hub->slots[i];
        if (s->here || s->own) continue;
        if (hub->known && strcmp(s->join.host, join->host) == 0) return i;
        if (free_slot < 0 && s->join.size == 0) free_slot = i;
        if (left < 0) left = i;
    }
    return free_slot >= 0 ? free_slot : left;
}

static bool may_take(const ls__hub *hub, int slot, const ls__node_join *join, char why[256])
{
    const ls__slot *s = slot >= 0 ? &hub->slots[slot] : NULL;
    const char *run_id = hub->options.run_id;
    if (join->run_id[0] && run_id && strcmp(join->run_id, run_id) != 0)
        snprintf(why, 256,
                 "this is run %.80s, and it was part of run %.80s (--name on the first node)",
                 run_id, join->run_id);
    else if (!s && join->node_rank >= 0)
        snprintf(why, 256, "--node-rank %d of %d nodes", join->node_rank, hub->options.launchers);
    else if (!s)
        snprintf(why, 256, "all %d nodes are there already", hub->options.launchers);
    else if (s->here)
        snprintf(why, 256, "node %d is there already: host %.200s", slot, s->join.host);
    else if (hub->known && s->join.size > 0 && s->join.size != join->size)
        snprintf(why, 256, "node %d had %d ranks before it was lost, and comes back with %d", slot,
                 s->join.size, join->size);
    else
        return true;
    return false;
}

static void join(ls__hub *hub, ls__visitor *v, const ls__node_frame *frame)
{
    ls__node_join wanted;
    char why[256];
    if (ls__node_join_read(frame, &wanted) != LS_OK) {
        ls__visitor_refuse(hub, v, false, ls_error_text());
        return;
    }
    int slot = choose_slot(hub, &wanted);
    if (hub->over || !may_take(hub, slot, &wanted, why)) {
        /* The one that is there may be about to be found lost: its successor tries again. */
        bool again = !hub->over && slot >= 0 && hub->slots[slot].here && hub->started;
        ls__visitor_refuse(hub, v, again, hub->over ? "the job is over" : why);
        return;
    }
    ls__slot *s = &hub->slots[slot];
    s->join = wanted;
    s->here = true;
    s->visitor = v;
    v->launcher = slot;
    v->state = LS__VISITOR_JOINED;
    hub->here++;
    if (hub->options.come) hub->options.come(hub->options.user, slot);
}

static void pong(ls__visitor *v, int64_t theirs)
{
    ls__node_frame frame = { .type = LS__NODE_PONG, .numbers = { theirs, ls__now_ns() } };
    ls__node_link_send(&v->link, &frame);
}

void ls__visitor_take(ls__hub *hub, ls__visitor *v, const ls__node_frame *frame)
{
    if (frame->type == LS__NODE_PING && v->state >= LS__VISITOR_KNOWN) pong(v, frame->numbers[0]);
    if (v->state == LS__VISITOR_JOINED) {
        hub->options.message(hub->options.user, v->launcher, frame);
    } else if (v->state == LS__VISITOR_NEW && frame->type == LS__NODE_HELLO) {
        greet(hub, v, frame);
    } else if (v->state == LS__VISITOR_ASKED && frame->type == LS__NODE_ANSWER) {
        check(hub, v, frame);
    } else if (v->state == LS__VISITOR_KNOWN && frame->type == LS__NODE_JOIN) {
        join(hub, v, frame);
    } else if (v->state != LS__VISITOR_LEAVING && frame->type != LS__NODE_PING) {
        ls__visitor_refuse(hub, v, false, "it says something out of turn");
    }
}
