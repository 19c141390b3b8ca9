/* The error file of torch.distributed.elastic's @record: {"message": {"message": "Type: text",
 * "extraInfo": {"py_callstack": "...", "timestamp": "<s>"}}}. A program may be killed while it writes
 * it, and another may write what it likes, so what cannot be read is as good as no file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "launch/launcher.h"
#include "world/report.h"

enum { ERROR_FILE_MAX = 4 << 20 };

void ls__rank_error_read(const char *folder, int rank, char *out, size_t nbytes)
{
    char path[LS_PATH_MAX];
    json_t *document = NULL;
    out[0] = '\0';
    ls__rank_error_path(folder, rank, path);
    if (access(path, R_OK) != 0 || ls__json_read(path, ERROR_FILE_MAX, &document) != LS_OK) return;
    const json_t *message = json_object_get(document, "message");
    if (json_is_object(message)) message = json_object_get(message, "message");
    const char *text = json_string_value(message);
    if (text) {
        size_t length = strcspn(text, "\n");
        snprintf(out, nbytes, "%.*s", (int)(length < nbytes ? length : nbytes - 1), text);
        ls__clean_text(out);
    }
    json_decref(document);
}
