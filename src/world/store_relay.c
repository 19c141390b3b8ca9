/* Requests of ranks on other machines. Each machine has one connection to the root that has the store;
 * a rank's request travels over it in a frame that names the rank, and so does the reply. Expected:
 * some requests a second per machine. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "world/store_server_internal.h"

void ls__server_forget_proxies(ls__connection *l)
{
    for (ls__proxy *p = l->proxies; p;) {
        ls__proxy *next = p->next;
        ls__core_forget(l->server->core, p);
        ls__free(p);
        p = next;
    }
    l->proxies = NULL;
}

/* Under the core's lock: an overfull buffer is seen later. */
static void reply(void *client, const ls__frame *frame)
{
    ls__proxy *p = client;
    if (!p->link->dead && ls__bytes_append_relay(&p->link->out, p->rank, frame) == LS_OK)
        ls__connection_flush(p->link);
}

static ls__proxy *proxy_of(ls__connection *l, int rank)
{
    for (ls__proxy *p = l->proxies; p; p = p->next)
        if (p->rank == rank) return p;
    ls__proxy *p = ls__alloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (ls__proxy) { .next = l->proxies, .link = l, .rank = rank };
    l->proxies = p;
    return p;
}

/* The frame inside; false: there is not exactly one. */
static bool unwrap(const ls__frame *relay, int size, ls__frame *inner)
{
    size_t used;
    return relay->number >= 0 && relay->number < size &&
           ls__frame_parse(relay->value, relay->nbytes, inner, &used) == LS_OK &&
           used == relay->nbytes && used > 0;
}

void ls__server_node_frame(ls__connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    if (frame->type != LS__FRAME_RELAY) {
        server->hooks.node_frame(server->hooks.user, l->rank, frame);
        return;
    }
    ls__frame inner;
    ls__proxy *proxy = NULL;
    if (unwrap(frame, server->size, &inner) && ls__frame_is_request(&inner))
        proxy = proxy_of(l, (int)frame->number);
    if (proxy)
        ls__core_request(server->core, proxy, reply, proxy->rank, &inner);
    else
        ls__connection_close(l);
}

void ls__server_uplink_frame(ls__connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    if (frame->type != LS__FRAME_RELAY) {
        server->hooks.node_frame(server->hooks.user, -1, frame);
        return;
    }
    ls__frame inner;
    if (unwrap(frame, server->size, &inner) && inner.type == LS__FRAME_REPLY)
        ls__server_send(server, (int)frame->number, &inner);
    else
        ls__connection_close(l);
}

void ls__server_forward(ls__connection *l, const ls__frame *request)
{
    ls__connection *up = l->server->uplink;
    if (up->dead) return; /* the ranks are told */
    if (ls__bytes_append_relay(&up->out, l->rank, request) == LS_OK)
        ls__connection_flush(up);
    else
        ls__connection_close(up);
}

void ls__server_send_up(ls__server *server, const ls__frame *frame)
{
    if (server->uplink) ls__connection_send(server->uplink, frame);
}

void ls__server_send_nodes(ls__server *server, const ls__frame *frame)
{
    for (ls__connection *l = server->links; l; l = l->next)
        if (l->peer == LS__PEER_NODE) ls__connection_send(l, frame);
}

void ls__server_end_node(ls__server *server, int root, const ls__frame *last)
{
    for (ls__connection *l = server->links; l; l = l->next)
        if (l->peer == LS__PEER_NODE && l->rank == root) ls__connection_send(l, last);
}

int ls__server_nodes(const ls__server *server)
{
    int n = 0;
    for (const ls__connection *l = server->links; l; l = l->next)
        n += l->peer == LS__PEER_NODE && !l->dead;
    return n;
}

bool ls__server_silent(const ls__server *server, double seconds, int *root)
{
    double now = ls__now();
    for (const ls__connection *l = server->links; l; l = l->next) {
        bool far = l->peer == LS__PEER_NODE || (l->peer == LS__PEER_UPLINK && l->fd >= 0);
        if (!far || l->dead || now - l->heard < seconds) continue;
        *root = l->peer == LS__PEER_NODE ? l->rank : -1;
        return true;
    }
    return false;
}

void ls__server_forgive_silence(ls__server *server)
{
    for (ls__connection *l = server->links; l; l = l->next) l->heard = ls__now();
}

void ls__server_name_host(ls__server *server, int rank, const char *host)
{
    if (rank < 0 || rank >= server->size) return;
    if (ls__core_name_host(server->core, rank, host) != LS_OK) return; /* only a text is poorer */
}
