/* Token files, and datasets of windows over tokens, wherever these lie. */
#ifndef LS_DATA_TOKENS_H
#define LS_DATA_TOKENS_H

#include <lockstep/dataset.h>

#include "data/convert.h"
#include "data/data_file.h"

/* llm.c's shards: 256 words of i32, [0] magic, [1] version, [2] count, then the tokens; all
 * little-endian:
 *     magic 20240520, version 1: u16 (GPT-2)     magic 20240801, version 7: u32 (Llama 3)
 * nanoGPT's files are u16 without a header. */
enum { LS__SHARD_HEADER = 256 * 4, LS__SHARD_GPT2 = 20240520, LS__SHARD_LLAMA3 = 20240801 };

typedef struct ls__tokens {
    const ls__stored *stored; /* as i32 */
    int64_t count;
    const uint8_t *values;
} ls__tokens;

/* Borrows bytes. Strict: exactly the tokens that the header promises. name is for errors, all
 * LS_ERR_DATA. */
ls_status ls__tokens_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__tokens *out);

/* Tokens in a row, in a file's mapping or in memory. */
typedef struct ls__token_run {
    ls__data_file file;
    ls__tokens tokens;
    char *name;      /* of the file; freed by ls__free */
    int64_t windows; /* before this run's first; set by ls__token_windows */
} ls__token_run;

typedef struct ls__token_source {
    ls__token_run *runs; /* (nruns), freed by ls__free */
    int64_t nruns;
    int64_t context;
    int64_t vocabulary; /* a token at or above is an error of the read; 0 = not looked at */
    int32_t *table;     /* (256) what each byte becomes, where tokens are bytes; freed by ls__free;
                           NULL = itself */
    const char *name;   /* in errors; copied */
} ls__token_source;

/* The dataset of windows: see ls_dataset_tokens. Takes over what source points to, also on
 * failure. */
ls_status ls__token_windows(ls__token_source *source, ls_dataset **out);
void ls__token_source_close(ls__token_source *source);

#endif
