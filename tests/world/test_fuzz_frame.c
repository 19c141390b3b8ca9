/* Mutated streams of frames. */
#include "testing.h"

#include "world/fuzz_frame.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static void add(ls__bytes *bytes, ls__frame_type type, const char *key, const char *value,
                int64_t number)
{
    static uint32_t id;
    assert_ok(ls__bytes_append_frame(bytes, &(ls__frame) { .type = type,
                                                           .id = ++id,
                                                           .number = number,
                                                           .key = key,
                                                           .key_nbytes = strlen(key),
                                                           .value = value,
                                                           .nbytes = strlen(value) }));
}

static void mutated_frames(void **state)
{
    (void)state;
    ls__bytes bytes = { 0 };
    add(&bytes, LS__FRAME_GET, "later", "", 0);
    add(&bytes, LS__FRAME_SET, "later", "value", 0);
    add(&bytes, LS__FRAME_DELETE, "later", "", 0);
    add(&bytes, LS__FRAME_ADD, "n", "", INT64_MAX);
    add(&bytes, LS__FRAME_ADD, "n", "", 1);
    add(&bytes, LS__FRAME_BARRIER, "b", "", 2);
    add(&bytes, LS__FRAME_BARRIER, "b", "", 2);
    add(&bytes, LS__FRAME_BARRIER, "c", "", 5);
    add(&bytes, LS__FRAME_CANCEL, "", "", 0);
    add(&bytes, LS__FRAME_HELLO, "job", "secret", (int64_t)2 << 32 | 1);
    add(&bytes, LS__FRAME_PROGRESS, "", "step 3\x01\xff", 0);
    char value[LS__END_FRAME_VALUE];
    ls__frame ended;
    ls__end end = { .kind = LS__END_LOST, .rank = 2, .pid = 77, .host = "b", .said = "so\nit was" };
    ls__end_frame(&end, value, &ended);
    assert_ok(ls__bytes_append_frame(&bytes, &ended));
    ls__frame inner = { .type = LS__FRAME_GET, .key = "k", .key_nbytes = 1 };
    assert_ok(ls__bytes_append_relay(&bytes, 3, &inner));
    fuzz_seed(bytes.data, bytes.end, 20000);
    ls__bytes_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_frames) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
