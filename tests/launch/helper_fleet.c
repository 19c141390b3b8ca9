/* A hub and spokes in one process. */
#include "helper_fleet.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static void come(void *user, int launcher)
{
    ((fleet *)user)->come[launcher]++;
}

static void lost(void *user, int launcher, const char *why)
{
    fleet *f = user;
    f->lost[launcher]++;
    snprintf(f->why, sizeof f->why, "%s", why);
}

static void message(void *user, int launcher, const ls__node_frame *frame)
{
    fleet *f = user;
    (void)launcher;
    f->got[frame->type]++;
    f->number = frame->numbers[0];
}

ls_status fleet_open(fleet *f, int launchers, const ls__node_join *own, const char *secret,
                     double silence)
{
    memset(f, 0, sizeof *f);
    return ls__hub_create(&(ls__hub_options) { .launchers = launchers,
                                               .own = own,
                                               .secret = secret,
                                               .loopback = true,
                                               .silence = silence,
                                               .come = come,
                                               .lost = lost,
                                               .message = message,
                                               .user = f },
                          &f->hub);
}

ls__spoke *fleet_spoke(fleet *f, int node_rank, int size, const char *secret, double silence)
{
    ls__spoke_options options = { .host = "127.0.0.1",
                                  .port = ls__hub_port(f->hub),
                                  .secret = secret,
                                  .silence = silence,
                                  .join = { .node_rank = node_rank, .size = size, .port = 4000 } };
    snprintf(options.join.host, sizeof options.join.host, "h%d", f->nspokes + 1);
    if (ls__spoke_create(&options, &f->spokes[f->nspokes]) != LS_OK) return NULL;
    return f->spokes[f->nspokes++];
}

bool fleet_serve(fleet *f, bool (*done)(fleet *f), double seconds)
{
    double deadline = ls__now() + seconds;
    while (ls__now() < deadline) {
        if (f->hub) ls__hub_serve(f->hub);
        for (int i = 0; i < f->nspokes; i++)
            if (f->spokes[i]) ls__spoke_serve(f->spokes[i]);
        if (done(f)) return true;
        ls__sleep_ms(1);
    }
    return false;
}

void fleet_close(fleet *f)
{
    for (int i = 0; i < f->nspokes; i++) ls__spoke_destroy(f->spokes[i]);
    ls__hub_destroy(f->hub);
}
