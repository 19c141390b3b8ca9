/* Inside of the option table: its rows, and how a value is read. */
#ifndef LS_BASE_OPTION_INTERNAL_H
#define LS_BASE_OPTION_INTERNAL_H

#include "base/option.h"

typedef enum ls__option_type {
    LS__OPTION_INT,
    LS__OPTION_DOUBLE,
    LS__OPTION_STRING,
    LS__OPTION_BOOL,
    LS__OPTION_CHOICE,   /* one of the words of placeholder, "a|b|c"; asked for as a string */
    LS__OPTION_EVERY,    /* ls_every */
    LS__OPTION_DURATION, /* seconds; asked for as a double */
} ls__option_type;

typedef struct ls__option_row {
    const char *name; /* without dashes */
    ls__option_type type;
    ls__option_group group;
    const char *placeholder; /* of the value in --help: "N" */
    const char *fallback;    /* the default in --help; NULL = said in help, or none */
    const char *help;        /* one line */
    double min, max;         /* of numbers; both 0 = any */
    bool above_min;          /* min itself is not allowed */
    const char *none_word;   /* the word for off or unlimited ("none"); NULL = there is none */
    bool zero_is_none;       /* 0 means off; in the options structs 0 would be the default */
    bool flag_only;          /* no variable: --help, --version */
} ls__option_row;

extern const ls__option_row ls__option_table[];
extern const int ls__option_table_size;

typedef struct ls__option_value {
    const char *text; /* as given */
    bool none;        /* the none word: numbers are LS_NONE, strings NULL */
    union {
        int64_t i;
        double d;
        const char *s;
        bool b;
        ls_every every;
    };
} ls__option_value;

enum { LS__OPTION_VALUE_MAX = LS_PATH_MAX }; /* bytes of a value with its NUL */

/* Reads text as row's type. as_given names the option in errors: "--lr", "LOCKSTEP_LR". */
ls_status ls__option_value_parse(const ls__option_row *row, const char *as_given, const char *text,
                                 ls__option_value *out);

/* One of a program's options, ours or its own. */
typedef struct ls__option {
    ls__option_row row;
    const ls_flag *flag;         /* NULL = ours */
    ls__option_value initial;    /* of a program's flag: its default */
    ls__option_value value;      /* what was set; else initial */
    const char *program_default; /* of ours: what the program's defaults say; NULL = nothing */
    char *origin;                /* "flag", "variable LOCKSTEP_X"; NULL = not set */
} ls__option;

struct ls__options {
    int count;
    ls__option *options; /* (count) in the order of --help */
};

/* The option of this name (length bytes); NULL when this program has none. */
ls__option *ls__option_find(const ls__options *o, const char *name, size_t length);

/* All of this program's, NULL-ended, freed by ls__free; NULL = no memory. */
const char **ls__option_names(const ls__options *o);

/* Fails with the text for an unknown flag: a suggestion from names (NULL-ended, without dashes),
 * or ours for another tool's spelling. given: with its dashes, without a value. */
ls_status ls__option_unknown(const char *given, const char *const *names);
/* Which of names somebody meant, by a misspelling or another tool's spelling; false = unknown. */
bool ls__option_meant(const char *name, const char *const *names, char out[64]);

/* Sets what no flag has set. */
ls_status ls__option_read_variables(ls__options *o);

#endif
