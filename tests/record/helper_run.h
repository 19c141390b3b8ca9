/* A fresh runs_dir, and files as text. */
#ifndef LS_TEST_HELPER_RUN_H
#define LS_TEST_HELPER_RUN_H

#include "record/record.h"

extern char runs_dir[LS_PATH_MAX];

int fresh_runs(void **state); /* cmocka's setup and teardown */
int remove_runs(void **state);

/* runs_dir/name/file; one static buffer. */
const char *run_file(const char *name, const char *file);
void write_text_file(const char *path, const void *text, size_t nbytes);
/* Freed by free. */
char *read_text_file(const char *path);

#endif
