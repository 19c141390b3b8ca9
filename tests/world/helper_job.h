/* Starting jobs in tests: real processes, their output in files, and the certainty that none of
 * them is left. */
#ifndef LS_HELPER_JOB_H
#define LS_HELPER_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

typedef struct job {
    pid_t pid;
    int code;       /* after job_wait: exit code, or 128 + signal */
    double seconds; /* it took */
    double started;
    char mark[64];    /* in the environment of every process of the job */
    char folder[128]; /* for its files; removed by job_end */
    char out[160], err[160], report[160];
} job;

/* A fresh job: a folder for its files. */
void job_begin(job *j);
/* Starts the program (in the folder of the tests) with the words (NULL-ended) behind its name, in
 * a process group of its own. extra: "NAME=value" words for its environment, NULL-ended, or NULL.
 */
void job_start(job *j, const char *program, const char *const *words, const char *const *extra);
/* Waits at most so many seconds; fails the test when the job takes longer. */
void job_wait(job *j, double seconds);
/* No process with the job's mark is left two seconds from now; then the folder goes. */
void job_end(job *j);
/* How many processes carry the mark. */
int job_processes(const job *j);
/* Contents of a file of the job, whole; until the next call. */
const char *job_read(const char *path);
/* Waits until the file is there and not empty, and reads a number out of it. */
long job_number(const job *j, const char *name);
/* The report; the caller decrefs. Fails the test when there is none. */
json_t *job_report(const job *j);
void assert_report(const job *j, const char *verdict, int exit_code, int rank, const char *text);

double test_now(void);
void test_sleep(double seconds);

#endif
