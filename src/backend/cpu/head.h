/* The head of a language model: a linear layer with large weights whose scores only a cross-entropy
 * reads. Scores of all rows would be the largest tensor of all; so the nodes from the layer to its
 * gradients are lowered together, a block of rows after the other (cpu_head.c). */
#ifndef LS_BACKEND_CPU_HEAD_H
#define LS_BACKEND_CPU_HEAD_H

#include "backend/cpu/cpu.h"

typedef struct cpu_head {
    int linear, entropy; /* nodes */
    /* training; -1: not there */
    int entropy_grad, grad_weight, grad_x;
} cpu_head;

/* Fills b->heads and marks what else they absorb (head_match.c). */
ls_status ls__cpu_find_heads(cpu_builder *b);
/* Lowers node i if it is where a head's steps belong; *done says whether. */
ls_status ls__cpu_lower_head(cpu_builder *b, int i, bool *done);
/* All steps of a head (cpu_head.c). */
ls_status ls__cpu_head(cpu_builder *b, const cpu_head *head);

#endif
