/* --slurm-script: the batch script that people otherwise write from memory. One launcher per node, which
 * finds the rest in SLURM's variables; a signal early enough to save before the time limit; and a job
 * that was stopped and has saved (code 75) is queued again under its number. */
#include <stdio.h>

#include "base/check.h"
#include "base/memory.h"
#include "launch/agents.h"
#include "launch/launcher.h"

ls_status ls__slurm_script(const ls__launcher_flags *flags, const ls__launcher_words *words)
{
    static const char *const not_there[] = { LS__FLAGS_OF_NODES, NULL };
    ls__text text = { 0 };
    int nodes = 1, processes = 0;
    if (!words->program[0])
        return ls_fail(LS_ERR_CONFIG, "no program: lockstep run --slurm-script PROGRAM [ARG...]");
    if (flags->nnodes)
        LS_TRY(ls__launcher_number("nnodes", flags->nnodes, 1, LS__NODES_MAX, &nodes));
    if (flags->nproc_per_node && flags->nproc_per_node[0] >= '0' && flags->nproc_per_node[0] <= '9')
        LS_TRY(ls__launcher_number("nproc-per-node", flags->nproc_per_node, 1, LS__SLOTS_MAX,
                                   &processes));
    ls__launcher_words_again(words, not_there, &text);
    char *command = ls__text_take(&text);
    if (!command) return LS_ERR_MEMORY;
    printf("#!/bin/bash\n"
           "#SBATCH --nodes=%d\n"
           "#SBATCH --ntasks-per-node=1\n",
           nodes);
    if (processes > 0)
        printf("#SBATCH --cpus-per-task=%d  # or more: the processes of a node share them\n",
               processes);
    printf("##SBATCH --gpus-per-node=%d    # remove one # on a cluster with GPUs\n"
           "#SBATCH --time=01:00:00\n"
           "#SBATCH --signal=TERM@90      # to the program, so long before the time is over\n"
           "#SBATCH --requeue\n"
           "#SBATCH --open-mode=append\n"
           "\n"
           "srun --kill-on-bad-exit=0 lockstep run %s\n"
           "code=$?\n"
           "# 75: stopped and saved; the same command goes on.\n"
           "if [ $code -eq 75 ]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n"
           "exit $code\n",
           processes > 0 ? processes : 1, command);
    ls__free(command);
    return LS_OK;
}
