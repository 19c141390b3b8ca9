/* Finds the checkpoint to go on from. The rule: the newest whose every byte is what its manifest
 * says; damaged ones are named and passed over. When there are checkpoints and none is whole, that
 * is an error and not a fresh start, which would throw the run away. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

ls_status ls__checkpoint_trainer(const char *path, json_t **trainer)
{
    char file[LS_PATH_MAX];
    *trainer = NULL;
    LS_TRY(ls__path_join(file, path, LS__TRAINER_FILE));
    return ls__json_read(file, LS__TRAINER_MAX, trainer);
}

static ls_status verify_and_read(const char *path, json_t **trainer)
{
    LS_TRY(ls__checkpoint_verify(path));
    return trainer ? ls__checkpoint_trainer(path, trainer) : LS_OK;
}

/* The newest that verifies; path "" when none does. */
static ls_status newest(const char *folder, const int64_t *steps, int n, char path[LS_PATH_MAX],
                        json_t **trainer)
{
    for (int i = n - 1; i >= 0; i--) {
        char name[64];
        ls__step_name(steps[i], name);
        LS_TRY(ls__path_join(path, folder, name));
        ls_status status = verify_and_read(path, trainer);
        if (status == LS_OK || status == LS_ERR_MEMORY) return status;
        ls__log(LS__LOG_WARN, "checkpoint passed over: %s", ls_error_text());
    }
    path[0] = '\0';
    return LS_OK;
}

ls_status ls__checkpoint_find(const char *folder, bool clean, char path[LS_PATH_MAX],
                              json_t **trainer)
{
    path[0] = '\0';
    if (trainer) *trainer = NULL;
    if (clean) LS_TRY(ls__checkpoint_clean(&ls__fs_posix, folder));
    int64_t *steps;
    int n;
    LS_TRY(ls__checkpoint_steps(folder, &steps, &n));
    ls_status status = newest(folder, steps, n, path, trainer);
    ls__free(steps);
    if (status == LS_OK && n > 0 && !path[0])
        return ls_fail(LS_ERR_DATA,
                       "%s: none of its %d checkpoints can be used; to begin anew, move the folder "
                       "away or give the run another --name",
                       folder, n);
    return status;
}
