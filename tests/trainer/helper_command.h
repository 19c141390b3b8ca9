/* Programs as a user starts them: command line, environment, both streams, exit code. */
#ifndef LS_TESTS_HELPER_COMMAND_H
#define LS_TESTS_HELPER_COMMAND_H

#include <jansson.h>
#include <sys/types.h>

#include "testing.h"

enum { COMMAND_WORDS = 48 };

typedef struct command {
    char *words[COMMAND_WORDS];
    int nwords;
    pid_t pid;
    int out_fd, err_fd;
    char *out, *err; /* after command_wait */
    int code;        /* exit code; 128 + n when a signal ended it */
} command;

/* A folder of its own for the runs of a test; removed by folder_remove. */
char *folder_make(void);
void folder_remove(char *path);
/* The same once for all tests of a group. */
extern char *runs_folder;
int make_runs_folder(void **state);
int remove_runs_folder(void **state);

/* program: beside the test ("prog_fit") or in bin ("lockstep"); line: words between spaces. */
void command_init(command *c, const char *program, const char *format, ...) LS_PRINTF(3, 4);
void command_start(command *c);
/* Reads both streams to their ends and waits. */
void command_wait(command *c);
void command_free(command *c);
/* All of it; fails the test when the exit code is another. */
void command_run(command *c, int code, const char *program, const char *format, ...)
    LS_PRINTF(4, 5);

/* The last line on stdout, parsed; freed by json_decref. */
json_t *command_document(const command *c);
/* A text inside a document: text_at(d, "weights_xxh3"). */
const char *text_at(const json_t *document, const char *key);
double number_at(const json_t *document, const char *key, const char *sub);

/* One run of prog_fit: its weights and validation, as text that is equal exactly when they are. */
void fit_signature(char out[256], const char *format, ...) LS_PRINTF(2, 3);

#endif
