/* "Did you mean": the closest of a few dozen names, and our word for another tool's. Runs once,
 * when a command line is wrong. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/option_internal.h"

enum { NAME_MAX_LENGTH = 48 };

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a into b (Damerau, "A
 * technique for computer detection and correction of spelling errors", 1964). */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > NAME_MAX_LENGTH || m > NAME_MAX_LENGTH) return NAME_MAX_LENGTH;
    int rows[3][NAME_MAX_LENGTH + 1]; /* of the table: the one before last, the last, this one */
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < row[j]) row[j] = before[j - 2] + 1;
        }
    }
    return row[m];
}

/* The one name that contains text, NULL when there are none or several. */
static const char *only_one_containing(const char *text, const char *const *names)
{
    const char *found = NULL;
    for (; *names; names++) {
        if (!strstr(*names, text)) continue;
        if (found) return NULL;
        found = *names;
    }
    return found;
}

const char *ls__suggest(const char *text, const char *const *names)
{
    size_t length = strlen(text);
    if (length == 0 || length > NAME_MAX_LENGTH) return NULL;
    int best = length < 3 ? 1 : 1 + (int)length / 4; /* more differences are another word */
    const char *close = NULL;
    for (const char *const *name = names; *name; name++) {
        int d = distance(text, *name);
        if (d < best || (d == best && !close)) {
            best = d;
            close = *name;
        }
    }
    return close || length < 4 ? close : only_one_containing(text, names);
}

/* What Lightning, torchrun, mpirun and others call it, and ours: the first that the program has. */
static const struct {
    const char *theirs, *ours;
} foreign_spellings[] = {
    { "accelerator", "--devices cpu:N" },
    { "accumulate-grad-batches", "--micro-batches N" },
    { "batch", "--batch-size" },
    { "check-val-every-n-epoch", "--validate-every Nepoch" },
    { "checkpoint-every", "--save-every" },
    { "ckpt-path", "--resume RUN" },
    { "clip-grad-norm", "--gradient-clip-val" },
    { "clip-norm", "--gradient-clip-val" },
    { "cpus-per-proc", "--threads-per-device" },
    { "cpus-per-task", "--threads-per-device" },
    { "default-root-dir", "--runs-dir" },
    { "early-stopping", "--early-stop METRIC" },
    { "early-stopping-patience", "--patience" },
    { "epochs", "--max-epochs" },
    { "eval-every", "--validate-every" },
    { "eval-interval", "--validate-every" },
    { "eval-steps", "--validate-every" },
    { "every-n-epochs", "--save-every Nepoch" },
    { "every-n-train-steps", "--save-every N" },
    { "experiment-name", "--name" },
    { "gpus", "--devices" },
    { "grad-clip", "--gradient-clip-val" },
    { "gradient-accumulation-steps", "--micro-batches N" },
    { "learning-rate", "--lr" },
    { "log-every-n-steps", "--log-every" },
    { "log-interval", "--log-every" },
    { "logging-steps", "--log-every" },
    { "lr-scheduler", "--schedule" },
    { "lr-scheduler-type", "--schedule" },
    { "max-grad-norm", "--gradient-clip-val" },
    { "max-iters", "--max-steps" },
    { "n", "--nproc-per-node N" },
    { "np", "--nproc-per-node N" },
    { "np", "--devices" },
    { "nproc", "--nproc-per-node N" },
    { "nproc", "--devices" },
    { "nproc-per-node", "--devices" },
    { "num-epochs", "--max-epochs" },
    { "num-gpus", "--devices" },
    { "num-processes", "--devices" },
    { "num-steps", "--max-steps" },
    { "num-threads", "--threads-per-device" },
    { "num-train-epochs", "--max-epochs" },
    { "num-warmup-steps", "--warmup-steps" },
    { "output-dir", "--runs-dir" },
    { "per-device-train-batch-size", "--batch-size (of all devices together)" },
    { "quiet", "--log-level warn" },
    { "random-seed", "--seed" },
    { "resume-from-checkpoint", "--resume RUN" },
    { "run-name", "--name" },
    { "save-last", "--keep-last" },
    { "save-steps", "--save-every" },
    { "save-top-k", "--keep-best" },
    { "seed-everything", "--seed" },
    { "threads", "--threads-per-device" },
    { "total-limit", "--keep-last" },
    { "train-batch-size", "--batch-size" },
    { "val-check-interval", "--validate-every" },
    { "verbose", "--log-level debug" },
    { "warmup", "--warmup-steps" },
    { "wd", "--weight-decay" },
};

static bool is_among(const char *name, size_t length, const char *const *names)
{
    for (; *names; names++)
        if (strncmp(*names, name, length) == 0 && (*names)[length] == '\0') return true;
    return false;
}

/* Ours for theirs, when this program has it. */
static const char *translate(const char *theirs, const char *const *names)
{
    for (size_t i = 0; i < sizeof foreign_spellings / sizeof foreign_spellings[0]; i++) {
        const char *ours = foreign_spellings[i].ours;
        if (strcmp(foreign_spellings[i].theirs, theirs) == 0 &&
            is_among(ours + 2, strcspn(ours + 2, " "), names))
            return ours;
    }
    return NULL;
}

/* "Max_Epochs" -> "max-epochs"; empty when too long to be a misspelling of anything. */
static void plain_spelling(const char *given, char out[NAME_MAX_LENGTH + 1])
{
    given += strspn(given, "-");
    size_t n = strlen(given);
    if (n > NAME_MAX_LENGTH) n = 0;
    for (size_t i = 0; i < n; i++)
        out[i] = given[i] == '_' ? '-' : (char)tolower((unsigned char)given[i]);
    out[n] = '\0';
}

bool ls__option_meant(const char *name, const char *const *names, char out[64])
{
    const char *ours = translate(name, names);
    const char *meant = ours ? ours + 2 : ls__suggest(name, names);
    if (meant) snprintf(out, 64, "%.*s", (int)strcspn(meant, " "), meant);
    return meant != NULL;
}

ls_status ls__option_unknown(const char *given, const char *const *names)
{
    char name[NAME_MAX_LENGTH + 1];
    plain_spelling(given, name);
    const char *ours = translate(name, names);
    if (ours) return ls_fail(LS_ERR_CONFIG, "%.64s: no such flag; here it is %s", given, ours);
    const char *close = ls__suggest(name, names);
    if (close)
        return ls_fail(LS_ERR_CONFIG, "%.64s: no such flag; did you mean --%s?", given, close);
    return ls_fail(LS_ERR_CONFIG, "%.64s: no such flag; --help lists them", given);
}
