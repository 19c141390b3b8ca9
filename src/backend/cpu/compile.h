/* The backend's functions behind its table. Their contract: graph/backend.h. */
#ifndef LS_BACKEND_CPU_COMPILE_H
#define LS_BACKEND_CPU_COMPILE_H

#include "backend/cpu/cpu.h"

ls_status ls__cpu_compile(const ls_graph *graph, ls__executable **out);
void ls__cpu_destroy(ls__executable *e);
size_t ls__cpu_arena_bytes(const ls__executable *e);
ls_status ls__cpu_run(ls__executable *e, const ls__run_context *context);
ls_status ls__cpu_read_result(ls__executable *e, const ls__run_context *context,
                              const ls_tensor *tensor, ls_array *out);
ls_status ls__cpu_profile_begin(ls__executable *e, int64_t events);
void ls__cpu_profile_read(ls__executable *e, ls__profile *out);

/* cpu_profile.c */
ls_status ls__cpu_program_profile(cpu_program *p, int64_t events);
void ls__cpu_program_profile_read(const cpu_program *p, ls__profile *out);

#endif
