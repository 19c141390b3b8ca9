/* SLURM's compressed lists: hosts as n[001-003,7],x and numbers per node as 2(x3),1. */
#ifndef LS_WORLD_NODELIST_H
#define LS_WORLD_NODELIST_H

#include <stddef.h>

#include <lockstep/base.h>

/* The first host of a list. LS_ERR_CONFIG for what is no list. */
ls_status ls__nodelist_first(const char *list, char *out, size_t limit);
/* How many tasks this node has, and how many nodes the list has. */
ls_status ls__tasks_of_node(const char *list, int node, int *tasks, int *nodes);

#endif
