/* A world of one rank and a folder, for the tests of one process. */
#ifndef LS_TESTS_HELPER_SINGLE_H
#define LS_TESTS_HELPER_SINGLE_H

#include "testing.h"

#include <lockstep/lockstep.h>

extern char folder[];
extern ls_world *world;

/* Of a group of tests: what is logged below errors is left out. */
int begin(void **state);
int end(void **state);

#endif
