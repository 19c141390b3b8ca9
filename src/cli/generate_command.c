/* lockstep generate RUN: a language model continues a text. What it writes goes to stdout as it is
 * made, nothing else does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "recipe/gpt.h"
#include "world/world_internal.h"

enum { TOKENS_MAX = 1 << 24 };

typedef struct generate {
    ls_world *world;
    const char *name; /* of the run, as given */
    const char *runs_dir, *prompt, *tokenizer_folder;
    const char *precision; /* NULL = the run's */
    double temperature;
    int64_t top_k, max_tokens, seed;
    ls_cli_run run;
    FILE *to; /* stdout, or memory for the document */
    int64_t count;
    double seconds;
} generate;

static ls_status check_flags(const generate *c)
{
    if (!(c->temperature >= 0 && c->temperature <= 1000))
        return ls_fail(LS_ERR_CONFIG, "--temperature %g: 0 (always the most likely) to 1000",
                       c->temperature);
    if (c->top_k < 0)
        return ls_fail(LS_ERR_CONFIG, "--top-k %lld: 0 (all tokens) or more", (long long)c->top_k);
    if (c->max_tokens < 1 || c->max_tokens > TOKENS_MAX)
        return ls_fail(LS_ERR_CONFIG, "--max-tokens %lld: 1 to %d", (long long)c->max_tokens,
                       TOKENS_MAX);
    if (c->seed < 0) return ls_fail(LS_ERR_CONFIG, "--seed %lld: 0 or more", (long long)c->seed);
    return LS_OK;
}

static ls_status open_tokenizer(const generate *c, ls_tokenizer **out)
{
    if (c->tokenizer_folder) return ls_tokenizer_gpt2(c->tokenizer_folder, out);
    LS_TRY(recipe_gpt_load_tokenizer(c->run.folder, out));
    if (*out) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "%s: it was trained on token files, and nobody said what their tokens mean; if "
                   "they are GPT-2's, --tokenizer DIR with its encoder.json and vocab.bpe",
                   c->name);
}

/* A token may be a part of a character: bytes go out as they come. */
static ls_status write_piece(void *user, const char *piece, size_t nbytes)
{
    const generate *c = user;
    if (fwrite(piece, 1, nbytes, c->to) == nbytes && fflush(c->to) == 0) return LS_OK;
    return ls__fail_errno(LS_ERR_IO, "cannot write to standard output");
}

/* Refused before anything of it is printed. */
static ls_status check_prompt(const generate *c, const ls_tokenizer *tokenizer)
{
    int32_t *tokens = NULL;
    int64_t count;
    size_t nbytes = strlen(c->prompt);
    ls_status status =
        nbytes ? ls_tokenizer_encode(tokenizer, c->prompt, nbytes, &tokens, &count) : LS_OK;
    free(tokens);
    return status;
}

static ls_status write_text(generate *c)
{
    recipe_gpt recipe = { 0 };
    recipe_gpt_sampling sampling = { c->temperature, c->top_k, c->max_tokens, (uint64_t)c->seed };
    ls_tokenizer *tokenizer = NULL;
    ls_model *model = NULL;
    ls_status status;
    LS_TRY(ls_cli_run_find(c->runs_dir, c->name, &c->run));
    if (c->run.recipe != LS_CLI_RECIPE_GPT)
        return ls_fail(LS_ERR_CONFIG, "%s: not a language model (lockstep train gpt)", c->name);
    LS_TRY(recipe_gpt_load(&recipe, c->run.folder));
    LS_TRY_GOTO(open_tokenizer(c, &tokenizer), status, done);
    LS_TRY_GOTO(ls_model_create(c->world, recipe_gpt_step, &recipe, &model), status, done);
    LS_TRY_GOTO(ls_cli_run_precision(&c->run, c->precision, model), status, done);
    LS_TRY_GOTO(ls_model_load(model, c->run.path), status, done);
    LS_TRY_GOTO(check_prompt(c, tokenizer), status, done);
    LS_TRY_GOTO(write_piece(c, c->prompt, strlen(c->prompt)), status, done);
    double began = ls__now();
    status = recipe_gpt_generate(&recipe, model, tokenizer, c->prompt, &sampling, write_piece, c,
                                 &c->count);
    c->seconds = ls__now() - began;
done:
    ls_model_destroy(model);
    ls_tokenizer_destroy(tokenizer);
    return status;
}

/* --- the document --- */

/* Bytes of the UTF-8 character at text; 0 = it is none. */
static size_t character(const unsigned char *text, size_t n)
{
    unsigned char c = text[0];
    size_t length = c < 0x80                ? 1
                    : c >= 0xc2 && c < 0xe0 ? 2
                    : (c & 0xf0) == 0xe0    ? 3
                    : c >= 0xf0 && c < 0xf5 ? 4
                                            : 0;
    if (length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    if (length == 3 && ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] >= 0xa0))) return 0;
    if (length == 4 && ((c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] >= 0x90))) return 0;
    return length;
}

/* What is no UTF-8 becomes U+FFFD: JSON holds only characters. */
static json_t *json_text(const char *text, size_t n)
{
    json_t *value = NULL;
    char *clean = malloc(3 * n + 1), *to = clean;
    if (!clean) return NULL;
    for (size_t i = 0; i < n;) {
        size_t length = character((const unsigned char *)text + i, n - i);
        memcpy(to, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
        to += length ? length : 3;
        i += length ? length : 1;
    }
    value = json_stringn(clean, (size_t)(to - clean));
    free(clean);
    return value;
}

static json_t *document(const generate *c, const char *text, size_t nbytes)
{
    size_t prompt = strlen(c->prompt);
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:I, s:f, s:I, s:I, s:f}", "schema",
                     "lockstep.generate/1", "run", c->name, "checkpoint", c->run.path, "step",
                     (json_int_t)ls_cli_run_step(&c->run), "prompt", json_text(c->prompt, prompt),
                     "text", json_text(text + prompt, nbytes - prompt), "tokens",
                     (json_int_t)c->count, "temperature", c->temperature, "top_k",
                     (json_int_t)c->top_k, "seed", (json_int_t)c->seed, "tokens_per_s",
                     c->seconds > 0 ? (double)c->count / c->seconds : 0.0);
}

static ls_status print_document(generate *c)
{
    char *text = NULL;
    size_t nbytes = 0;
    c->to = open_memstream(&text, &nbytes);
    if (!c->to) return ls_fail(LS_ERR_MEMORY, "out of memory");
    ls_status status = write_text(c);
    if (fclose(c->to) != 0 && status == LS_OK) status = ls_fail(LS_ERR_MEMORY, "out of memory");
    if (status == LS_OK) status = ls_cli_print_json(document(c, text, nbytes));
    free(text);
    return status;
}

static ls_status print_text(generate *c)
{
    c->to = stdout;
    LS_TRY(write_text(c));
    return write_piece(c, "\n", 1);
}

int ls_cli_generate(int argc, char **argv)
{
    static generate c = {
        .runs_dir = "runs", .prompt = "", .temperature = 0.8, .top_k = 50, .max_tokens = 200
    };
    const ls_flag flags[] = {
        { "prompt", 's', &c.prompt, "the text to go on with" },
        { "temperature", 'd', &c.temperature, "below 1 is likelier, above 1 wilder; 0: no chance" },
        { "top-k", 'i', &c.top_k, "draw only from so many most likely tokens; 0: from all" },
        { "max-tokens", 'i', &c.max_tokens, "write so many tokens" },
        { "seed", 'i', &c.seed, "the same seed, the same text" },
        { "tokenizer", 's', &c.tokenizer_folder,
          "folder of GPT-2's encoder.json and vocab.bpe, for a run that has none" },
        { "precision", 's', &c.precision, "32, tf32 or bf16-mixed; default: the run's own" },
        { "runs-dir", 's', &c.runs_dir, "folder that holds runs" },
        { 0 },
    };
    const ls_world_options options = { .summary = "Lets a language model go on with a text.",
                                       .arguments = "RUN",
                                       .flags = flags,
                                       .one_device = true,
                                       .no_run = true };
    ls_check(ls_world_init(&argc, &argv, &options, &c.world));
    if (argc != 2)
        ls_check(ls_fail(LS_ERR_CONFIG,
                         "lockstep generate RUN: one run is needed, by name or path, with @last, "
                         "@best or @STEP; %d were given",
                         argc - 1));
    c.name = argv[1];
    ls_check(check_flags(&c));
    bool json = ls__options_wants(ls__world_options(c.world), "json");
    ls_check(json ? print_document(&c) : print_text(&c));
    json_decref(c.run.trainer);
    return ls_world_finish(c.world);
}
