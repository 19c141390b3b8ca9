/* --events FILE: what happens, a line of JSON at a time (lockstep.events/1), for programs that watch. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

ls_status ls__events_open(ls__launcher_job *j)
{
    const char *path = j->plan->events;
    if (!path[0] || j->plan->nodes.role == LS__NODES_OTHER) return LS_OK; /* the first one writes */
    j->events_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
    if (j->events_fd < 0)
        return ls__fail_errno(LS_ERR_CONFIG, "--events %s cannot be written", path);
    ls__events_write(j, "begin", json_pack("{s:s}", "schema", "lockstep.events/1"));
    return LS_OK;
}

void ls__events_write(ls__launcher_job *j, const char *event, json_t *fields)
{
    bool others = j->nodes && !ls__nodes_decides(j);
    if (j->events_fd < 0 && !others) {
        json_decref(fields);
        return;
    }
    json_t *whole = json_pack("{s:s,s:f}", "event", event, "time", ls__wall_time());
    if (whole && fields) json_object_update_missing(whole, fields);
    char *text = whole ? ls__json_line(whole) : NULL;
    char *line = text && !others ? ls__format("%s\n", text) : NULL;
    if (others && text) ls__nodes_tell_event(j, text);
    if (line && write(j->events_fd, line, strlen(line)) < 0 && errno != EAGAIN) {
        ls__log(LS__LOG_WARN, "no more events: %s: %s", j->plan->events, strerror(errno));
        close(j->events_fd);
        j->events_fd = -1;
    }
    ls__free(line);
    ls__free(text);
    json_decref(whole);
    json_decref(fields);
}
