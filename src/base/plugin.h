/* Where plugins lie, and loading one: lockstep_cpu.so, lockstep_cuda.so, lockstep_sim.so,
 * lockstep_gloo.so, lockstep_mpi.so. */
#ifndef LS_BASE_PLUGIN_H
#define LS_BASE_PLUGIN_H

#include <lockstep/base.h>

/* The path of a file that lies with the plugins: in the folder in LOCKSTEP_PLUGIN_DIR (and then no
 * other), beside liblockstep.so, in its folder lockstep, where the library was configured to be
 * installed. False when it is in none. */
bool ls__plugin_file(const char *file, char path[LS_PATH_MAX]);

/* The path of lockstep_<name>.so. LS_ERR_CONFIG with the places when it is in none. */
ls_status ls__plugin_find(const char *name, char path[LS_PATH_MAX]);

/* Loads it for good and finds its table, which begins with a pointer to the plugin's name. needs:
 * for the error's text, the libraries it may lack. */
ls_status ls__plugin_load(const char *name, const char *table, const char *needs, const void **out);

#endif
