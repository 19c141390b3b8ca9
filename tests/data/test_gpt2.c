/* GPT-2's tokenizer: the same tokens as Hugging Face's, from every kind of file; what is refused. */
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "testing.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/gpt2.h"
#include "helper_data_files.h"

static const char *golden_path(const char *name)
{
    static char paths[4][LS_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, LS_PATH_MAX, "%s/tests/data/gpt2_golden/%s", source ? source : "../../..", name);
    return path;
}

static char *golden_text(const char *name)
{
    char *text;
    size_t nbytes;
    assert_ok(ls__file_read(golden_path(name), 1 << 20, &text, &nbytes));
    return text;
}

static void copy_golden(const char *name, const char *as)
{
    char *text = golden_text(name);
    write_file(as, text, strlen(text));
    ls__free(text);
}

static const char *folder(void)
{
    static char path[128];
    strcpy(path, test_path(""));
    path[strlen(path) - 1] = '\0';
    return path;
}

static void check_case(const ls_tokenizer *t, const json_t *one, bool special)
{
    const char *text = json_string_value(json_object_get(one, "text"));
    size_t nbytes = json_string_length(json_object_get(one, "text"));
    const json_t *wanted = json_object_get(one, "tokens");
    int32_t *tokens;
    int64_t count;
    assert_ok((special ? ls_tokenizer_encode_special : ls_tokenizer_encode)(t, text, nbytes,
                                                                            &tokens, &count));
    for (int64_t i = 0; i < count && i < (int64_t)json_array_size(wanted); i++)
        if (tokens[i] != json_integer_value(json_array_get(wanted, (size_t)i)))
            fail_msg("\"%s\": token %lld is %d", text, (long long)i, tokens[i]);
    assert_int_equal(count, json_array_size(wanted));
    size_t at = 0, n;
    for (int64_t i = 0; i < count; i++, at += n) {
        const char *piece = ls_tokenizer_piece(t, tokens[i], &n);
        assert_true(at + n <= nbytes);
        assert_memory_equal(piece, text + at, n);
    }
    assert_int_equal(at, nbytes);
    free(tokens);
}

static void check_cases(const ls_tokenizer *t, const char *which)
{
    size_t i;
    const json_t *one;
    json_t *cases = json_load_file(golden_path("cases.json"), JSON_ALLOW_NUL, NULL);
    assert_true(json_array_size(json_object_get(cases, which)) > 10);
    json_array_foreach(json_object_get(cases, which), i, one)
        check_case(t, one, strcmp(which, "special") == 0);
    json_decref(cases);
}

static void as_hugging_face_does(void **state)
{
    (void)state;
    ls_tokenizer *t;
    copy_golden("tokenizer.json", "tokenizer.json");
    assert_ok(ls_tokenizer_gpt2(folder(), &t));
    for (int loaded = 0; loaded < 2; loaded++) {
        assert_string_equal(ls_tokenizer_kind(t), "gpt2");
        assert_int_equal(ls_tokenizer_size(t), 401);
        assert_int_equal(ls_tokenizer_end(t), 400);
        size_t n;
        assert_memory_equal(ls_tokenizer_piece(t, 400, &n), "<|endoftext|>", 13);
        assert_int_equal(n, 13);
        check_cases(t, "plain");
        check_cases(t, "special");
        assert_ok(ls_tokenizer_save(t, write_file("saved.json", "", 0)));
        ls_tokenizer_destroy(t);
        assert_ok(ls_tokenizer_load(test_path("saved.json"), &t));
    }
    ls_tokenizer_destroy(t);
    unlink(test_path("tokenizer.json"));
}

static void pairs_of_files(void **state)
{
    (void)state;
    const char *const names[][2] = { { "encoder.json", "vocab.bpe" },
                                     { "vocab.json", "merges.txt" } };
    for (int i = 0; i < 2; i++) {
        ls_tokenizer *t;
        copy_golden("vocab.json", names[i][0]);
        assert_fails(ls_tokenizer_gpt2(folder(), &t), LS_ERR_DATA, names[i][1]);
        assert_non_null(strstr(ls_error_text(), "is not; it takes tokenizer.json, or"));
        copy_golden("merges.txt", names[i][1]);
        assert_ok(ls_tokenizer_gpt2(folder(), &t));
        assert_int_equal(ls_tokenizer_size(t), 400);
        assert_int_equal(ls_tokenizer_end(t), -1);
        check_cases(t, "plain");
        ls_tokenizer_destroy(t);
        unlink(test_path(names[i][0]));
        unlink(test_path(names[i][1]));
    }
}

/* Chunks are cut where words are: the tokens of a long text are those of its words. */
static void long_texts(void **state)
{
    (void)state;
    enum { NBYTES = 1 << 20 };
    ls_tokenizer *t;
    copy_golden("tokenizer.json", "tokenizer.json");
    assert_ok(ls_tokenizer_gpt2(folder(), &t));
    unlink(test_path("tokenizer.json"));
    /* Cut before every part; runs of spaces, which merge, would show a cut within. */
    static const char part[] = " the device's\xC3\xA9          tokens,\n           12";
    const size_t length = sizeof part - 1;
    char *text = malloc(NBYTES);
    for (size_t i = 0; i < NBYTES; i++) text[i] = part[i % length];
    int32_t *one, *all;
    int64_t n, count;
    size_t parts = NBYTES / length;
    assert_ok(ls_tokenizer_encode(t, part, length, &one, &n));
    assert_ok(ls_tokenizer_encode(t, text, parts * length, &all, &count));
    assert_int_equal(count, n * (int64_t)parts);
    for (int64_t i = 0; i < count; i++) assert_int_equal(all[i], one[i % n]);
    free(all);
    for (size_t shift = 1; shift < length; shift += 5) { /* other places of the chunks' ends */
        int64_t head;
        size_t nbytes = (1 << 18) / length * length + 2 * length;
        assert_ok(ls_tokenizer_encode(t, part + shift, length - shift, &all, &head));
        free(all);
        assert_ok(ls_tokenizer_encode(t, text + shift, nbytes - shift, &all, &count));
        assert_int_equal((count - head) % n, 0);
        for (int64_t i = head; i < count; i++) assert_int_equal(all[i], one[(i - head) % n]);
        free(all);
    }
    free(one);
    memset(text, 'e', NBYTES); /* one word */
    assert_ok(ls_tokenizer_encode(t, text, NBYTES, &all, &count));
    assert_true(count > 0);
    free(all);
    text[NBYTES - 7] = '\xFF';
    assert_fails(ls_tokenizer_encode(t, text, NBYTES, &all, &count), LS_ERR_DATA,
                 "not UTF-8 at byte 1048569 (0xFF)");
    for (size_t i = 0; i < NBYTES; i++) text[i] = part[i % length];
    text[NBYTES - 7] = '\xFF';
    assert_fails(ls_tokenizer_encode(t, text, NBYTES, &all, &count), LS_ERR_DATA,
                 "not UTF-8 at byte 1048569 (0xFF)");
    free(text);
    ls_tokenizer_destroy(t);
}

static void a_dataset_of_text(void **state)
{
    (void)state;
    static const char text[] = "the tokens<|endoftext|>the device<|endoftext|>";
    ls_tokenizer *t;
    copy_golden("tokenizer.json", "tokenizer.json");
    assert_ok(ls_tokenizer_gpt2(folder(), &t));
    unlink(test_path("tokenizer.json"));
    write_file("text.txt", text, sizeof text - 1);
    for (int special = 0; special < 2; special++) {
        ls_dataset *d;
        int32_t *all, tokens[2], targets[2];
        int64_t count, ends = 0;
        assert_ok((special ? ls_tokenizer_encode_special
                           : ls_tokenizer_encode)(t, text, sizeof text - 1, &all, &count));
        for (int64_t i = 0; i < count; i++) ends += all[i] == ls_tokenizer_end(t);
        assert_int_equal(ends, special ? 2 : 0);
        ls_text_options options = { .special = special };
        assert_ok(ls_dataset_text_with(test_path("text.txt"), 2, t, &options, &d));
        assert_int_equal(ls_dataset_length(d), (count - 1) / 2);
        for (int64_t i = 0; i < ls_dataset_length(d); i++) {
            assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { tokens, targets }));
            assert_memory_equal(tokens, all + 2 * i, sizeof tokens);
            assert_memory_equal(targets, all + 2 * i + 1, sizeof targets);
        }
        free(all);
        ls_dataset_destroy(d);
    }
    ls_tokenizer_destroy(t);
}

/* --- refusals --- */

/* tokenizer.json with the first `from` replaced. */
static void refused(const char *from, const char *to, ls_status status, const char *says)
{
    char *text = golden_text("tokenizer.json"), *at = strstr(text, from);
    assert_non_null(at);
    char *changed = ls__format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_file("tokenizer.json", changed, strlen(changed));
    ls_tokenizer *t;
    assert_fails(ls_tokenizer_gpt2(folder(), &t), status, says);
    assert_non_null(strstr(ls_error_text(), "tokenizer.json"));
    assert_null(t);
    unlink(test_path("tokenizer.json"));
    ls__free(text);
    ls__free(changed);
}

static void other_tokenizers(void **state)
{
    (void)state;
    const ls_status other = LS_ERR_UNSUPPORTED;
    refused("\"type\":\"BPE\"", "\"type\":\"WordPiece\"", other, "model is \"WordPiece\"");
    refused("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", other,
            "normalizer is \"NFC\"");
    refused("\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", other,
            "pre_tokenizer is \"Whitespace\"");
    refused("\"pre_tokenizer\":{", "\"pre\":{", other, "pre_tokenizer is \"nothing\"");
    refused("\"add_prefix_space\":false", "\"add_prefix_space\":true", other, "add_prefix_space");
    refused("\"use_regex\":true", "\"use_regex\":false", other, "use_regex");
    refused("\"dropout\":null", "\"dropout\":0.1", other, "dropout");
    refused("\"byte_fallback\":false", "\"byte_fallback\":true", other, "byte_fallback");
    refused("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", other,
            "end_of_word_suffix");
}

static void damaged_files(void **state)
{
    (void)state;
    const ls_status bad = LS_ERR_DATA;
    refused("\"!\":0,", "\"!\":1,", bad, "are both token 1");
    refused("\"!\":0,", "\"!\":402,", bad, "has no number in [0, 401)");
    refused("\"!\":0,", "\"!\":\"0\",", bad, "has no number in");
    refused("\"!\":0,", "\"!x\":0,", bad, "no token for the byte 0x21 alone (\"!\")");
    refused("\"!\":0,", "\"\xE2\x82\xAC\":0,", bad, "not a byte-level vocabulary");
    refused("\"!\":0,", "\"\":0,", bad, "not a byte-level vocabulary");
    refused("\"id\":400", "\"id\":\"x\"", bad, "added token 0 lacks");
    refused("\"id\":400,\"content\":\"<|endoftext|>\"", "\"id\":400,\"content\":\"t\"", bad,
            "\"t\" is in the vocabulary already");
    refused("\"vocab\":{", "\"vokab\":{", bad, "its model has no \"vocab\"");
    refused("\"model\":{", "\"modell\":{", bad, "it has no \"model\"");
    refused("\"merges\":[", "\"merges\":[[\"t\"],", bad, "merge 1 is not two tokens");
    refused("\"merges\":[", "\"merges\":[\"t\",", bad, "merge 1 is not two tokens");
    refused("\"merges\":[", "\"merges\":[\"t h e\",", bad, "merge 1 is not two tokens");
    refused("\"merges\":[", "\"merges\":[7,", bad, "merge 1 is not two tokens");
    refused("\"merges\":[", "\"merges\":[\"X Y\",", bad,
            "merge 1 needs the token \"XY\", which is not in");
    refused("\"merges\":[", "\"merges\":[[\"\xC4\xA0\",\"t\"],", bad, "merge 2 stands twice");
    refused("{", "[", bad, "not valid JSON");
    write_file("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid", 46);
    ls_tokenizer *t;
    assert_fails(ls_tokenizer_gpt2(folder(), &t), bad, "git lfs pull");
    unlink(test_path("tokenizer.json"));
    copy_golden("vocab.json", "vocab.json");
    assert_fails(ls_tokenizer_gpt2((write_file("merges.txt", "\xC4\xA0 t\nt", 6), folder()), &t),
                 bad, "merge 2 is not two tokens");
    assert_fails(
        ls_tokenizer_gpt2((write_file("merges.txt", "\xC4\xA0 t\n\xFF e", 8), folder()), &t), bad,
        "merges.txt:2: not a list of merges");
    unlink(test_path("vocab.json"));
    unlink(test_path("merges.txt"));
    assert_fails(ls_tokenizer_gpt2(folder(), &t), bad, "openai-community/gpt2 (tokenizer.json)");
    assert_fails(ls_tokenizer_gpt2("/nowhere", &t), bad, "/nowhere: no GPT-2 tokenizer: it takes");
}

/* --- threads and memory --- */

static void *encode_many(void *user)
{
    static const char text[] = "The device's tokens, and the numbers 123; it's über. ";
    for (int i = 0; i < 200; i++) {
        int32_t *tokens;
        int64_t count;
        if (ls_tokenizer_encode(user, text, sizeof text - 1, &tokens, &count) != LS_OK) return user;
        free(tokens);
    }
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    ls_tokenizer *t;
    copy_golden("tokenizer.json", "tokenizer.json");
    assert_ok(ls_tokenizer_gpt2(folder(), &t));
    unlink(test_path("tokenizer.json"));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, encode_many, t);
    for (int i = 0; i < 3; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    ls_tokenizer_destroy(t);
}

static void failed_allocations(void **state)
{
    (void)state;
    copy_golden("tokenizer.json", "tokenizer.json");
    for (long n = 1;; n++) {
        ls_tokenizer *t;
        int32_t *tokens = NULL;
        int64_t count;
        ls__alloc_fail_at(n);
        ls_status status = ls_tokenizer_gpt2(folder(), &t);
        if (status == LS_OK) {
            status = ls_tokenizer_encode(t, "the device", 10, &tokens, &count);
            ls_tokenizer_destroy(t);
        }
        ls__alloc_fail_at(0);
        free(tokens);
        if (status == LS_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
    }
    unlink(test_path("tokenizer.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_hugging_face_does), cmocka_unit_test(pairs_of_files),
        cmocka_unit_test(long_texts),           cmocka_unit_test(a_dataset_of_text),
        cmocka_unit_test(other_tokenizers),     cmocka_unit_test(damaged_files),
        cmocka_unit_test(several_threads),      cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
