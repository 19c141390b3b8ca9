/* Every flag of ours, in the order of --help. The manual pages and LOCKSTEP_<FLAG> variables follow
 * from this table; a flag of a program's own joins it at run time. */
#include "base/option_internal.h"

#define LARGEST 2147483647.0
#define EXACT   9007199254740992.0 /* whole numbers up to here are exact in a double */

#define RUN     .group = LS__GROUP_RUN
#define LAUNCH  .group = LS__GROUP_LAUNCH
#define INT     .type = LS__OPTION_INT, .placeholder = "N"
#define DOUBLE  .type = LS__OPTION_DOUBLE, .placeholder = "X"
#define EVERY   .type = LS__OPTION_EVERY, .placeholder = "PERIOD", .none_word = "none"
#define TIME    .type = LS__OPTION_DURATION, .placeholder = "TIME", .none_word = "none"
#define CHOICE  .type = LS__OPTION_CHOICE
#define STRING  .type = LS__OPTION_STRING
#define SWITCH  .type = LS__OPTION_BOOL

/* clang-format off */
const ls__option_row ls__option_table[] = {
    { "batch-size", RUN, INT, .min = 1, .max = LARGEST, .fallback = "32",
      .help = "samples per optimizer step, over all devices" },
    { "micro-batches", RUN, INT, .min = 1, .max = 65536, .fallback = "one per device",
      .help = "cut the batch into so many; the same number gives the same bits on any number of "
              "devices" },
    { "max-epochs", RUN, INT, .min = 1, .max = LARGEST, .none_word = "none", .fallback = "1",
      .help = "stop after so many passes over the data" },
    { "max-steps", RUN, INT, .min = 1, .max = EXACT, .none_word = "none", .fallback = "none",
      .help = "stop after so many optimizer steps" },
    { "seed", RUN, INT, .min = 0, .max = EXACT, .fallback = "0",
      .help = "of everything random: parameters, order of samples, dropout" },
    { "optimizer", RUN, CHOICE, .placeholder = "sgd|nesterov|adamw", .fallback = "adamw",
      .help = "how gradients change the parameters" },
    { "lr", RUN, DOUBLE, .min = 0, .above_min = true, .max = 1e6, .fallback = "the optimizer's",
      .help = "learning rate" },
    { "weight-decay", RUN, DOUBLE, .min = 0, .max = 1e6, .none_word = "none", .zero_is_none = true,
      .fallback = "adamw 0.01, else none",
      .help = "decay of the weights; biases and norms have none" },
    { "momentum", RUN, DOUBLE, .min = 0, .max = 1, .none_word = "none", .zero_is_none = true,
      .fallback = "0.9", .help = "of sgd and nesterov" },
    { "schedule", RUN, CHOICE, .placeholder = "constant|linear|cosine|step", .fallback = "constant",
      .help = "how the learning rate changes during the run" },
    { "warmup-steps", RUN, INT, .min = 0, .max = EXACT, .fallback = "0",
      .help = "the learning rate rises from 0 during so many steps" },
    { "gradient-clip-val", RUN, DOUBLE, .min = 0, .max = 1e30, .none_word = "none",
      .zero_is_none = true, .fallback = "none",
      .help = "largest norm of the whole gradient; a larger one is scaled down" },
    { "precision", RUN, CHOICE, .placeholder = "32|tf32|bf16-mixed", .fallback = "32",
      .help = "bf16-mixed: matrix products in bf16, with sums, parameters and optimizer in fp32; "
              "tf32: GPUs round the factors of fp32 products" },
    { "deterministic", RUN, SWITCH,
      .help = "the same bits on any number of devices, as CPUs always give them: several GPUs add "
              "gradients in one fixed order instead of NCCL's, and attention in bf16 never runs by "
              "cuDNN, whose sums vary" },
    { "profile", RUN, SWITCH,
      .help = "measure where a step's time goes: a table at the end, a trace in the run's folder" },
    { "name", RUN, STRING, .placeholder = "NAME", .fallback = "made up",
      .help = "of the run; the same name goes on with it" },
    { "runs-dir", RUN, STRING, .placeholder = "DIR", .fallback = "runs",
      .help = "folder that holds runs" },
    { "resume", RUN, STRING, .placeholder = "auto|none|RUN", .fallback = "auto",
      .help = "auto: go on with this name's newest checkpoint, or begin; none: begin; RUN: go "
              "on with that run" },
    { "monitor", RUN, STRING, .placeholder = "METRIC", .fallback = "val/loss",
      .help = "the metric that says which checkpoint is best" },
    { "keep-best", RUN, INT, .min = 1, .max = LARGEST, .none_word = "all", .fallback = "1",
      .help = "how many of the best checkpoints to keep, or all" },
    { "keep-last", RUN, INT, .min = 1, .max = LARGEST, .none_word = "all", .fallback = "1",
      .help = "how many of the newest checkpoints to keep, or all" },
    { "early-stop", RUN, STRING, .placeholder = "METRIC", .none_word = "none", .fallback = "none",
      .help = "stop when this metric no longer improves" },
    { "patience", RUN, INT, .min = 1, .max = LARGEST, .fallback = "3",
      .help = "early stop: so many validations without improvement" },
    { "min-delta", RUN, DOUBLE, .min = 0, .max = 1e30, .fallback = "0",
      .help = "early stop: a smaller change is no improvement" },
    { "log-every", RUN, EVERY, .fallback = "50", .help = "log metrics" },
    { "save-every", RUN, EVERY, .fallback = "1epoch", .help = "save a checkpoint" },
    { "validate-every", RUN, EVERY, .fallback = "1epoch", .help = "run the validation" },

    { "devices", LAUNCH, STRING, .placeholder = "auto|N|gpu:N|gpu@0,2|cpu:N|sim:N",
      .fallback = "auto",
      .help = "which devices to use; auto: every GPU, and where there is none, every usable CPU "
              "core, at most 8; gpu@0,2: these, by number or UUID, gpu@0*2: two ranks on one; sim: "
              "simulated GPUs" },
    { "threads-per-device", LAUNCH, INT, .min = 1, .max = 4096,
      .help = "threads of each CPU device (default 1; cores divided by devices when more than 8 "
              "are usable)" },
    { "comm", LAUNCH, CHOICE, .placeholder = "auto|shm|gloo|mpi", .fallback = "auto",
      .help = "what moves bytes between machines; auto: MPI when it started the ranks, else Gloo; on "
              "one machine it is shared memory" },
    { "timeout", LAUNCH, TIME, .min = 0, .above_min = true, .max = 1e9, .fallback = "5min",
      .help = "longest wait of one rank for another" },
    { "grace-period", LAUNCH, TIME, .min = 0, .max = 1e9, .fallback = "25s",
      .help = "time to save and stop after a stop signal" },
    { "max-restarts", LAUNCH, INT, .min = 0, .max = 1000000, .fallback = "0",
      .help = "start again from the newest checkpoint after a failure, so many times" },
    { "report", LAUNCH, STRING, .placeholder = "FILE", .none_word = "none", .fallback = "none",
      .help = "write how the job ended to FILE, as JSON" },
    { "log-level", LAUNCH, CHOICE, .placeholder = "error|warn|info|debug", .fallback = "info",
      .help = "how much to say on stderr" },
    { "json", LAUNCH, SWITCH, .help = "the last line on stdout is one JSON document" },
    { "help", LAUNCH, SWITCH, .flag_only = true, .help = "show this and exit" },
    { "version", LAUNCH, SWITCH, .flag_only = true, .help = "show the version and exit" },
};
/* clang-format on */

const int ls__option_table_size = sizeof ls__option_table / sizeof ls__option_table[0];
