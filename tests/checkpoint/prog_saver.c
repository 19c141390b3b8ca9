/* Goes on from the newest checkpoint of a folder and saves step after step until it is killed; its
 * output says which steps were promised. Arguments: the folder, the number of ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper_saved.h"

int main(int argc, char **argv)
{
    char path[LS_PATH_MAX];
    if (argc != 3) return 2;
    if (ls__checkpoint_find(argv[1], true, path, NULL) != LS_OK) return 1;
    int64_t step = path[0] ? atoll(strrchr(path, '-') + 1) : 0;
    const char *differs = path[0] ? saved_check(path, step, 2) : NULL;
    if (differs) {
        fprintf(stderr, "%s: %s\n", path, differs);
        return 1;
    }
    saved_job job = { .folder = argv[1], .size = atoi(argv[2]), .keep_last = 2, .keep_best = 1 };
    for (step++;; step++) {
        saved_save save = { step, fabs(sin((double)step)) };
        if (saved_run(&job, &save, 1, NULL) != LS_OK) return 1;
        printf("%lld\n", (long long)step);
        fflush(stdout);
    }
}
