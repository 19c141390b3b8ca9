/* UTF-8: every code point there and back, and what is none. */
#include "testing.h"

#include "data/utf8.h"

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code == 0xD800) code = 0xE000;
        uint8_t text[4];
        uint32_t back = 0;
        int n = ls__utf8_encode(code, text);
        assert_int_equal(n, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        if (ls__utf8_decode(text, 4, &back) != n || back != code) fail_msg("U+%04X", code);
        assert_int_equal(ls__utf8_valid(text, (size_t)n), n);
        if (n > 1) { /* cut off */
            assert_int_equal(ls__utf8_decode(text, (size_t)n - 1, &back), 0);
            assert_int_equal(ls__utf8_valid(text, (size_t)n - 1), 0);
        }
    }
    assert_int_equal(ls__utf8_decode((const uint8_t *)"\xF0\x9F\x98\x80", 4, &(uint32_t) { 0 }), 4);
}

static void what_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xBF",
        "\xC0\x80",
        "\xC1\xBF",
        "\xE0\x9F\xBF",
        "\xF0\x8F\xBF\xBF",
        "\xED\xA0\x80",
        "\xED\xBF\xBF",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFF\xFF\xFF\xFF",
        "\xC3(",
        "\xE2\x82(",
        "\xF0\x9F\x98(",
        "\xF8\x88\x80\x80",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t code;
        assert_int_equal(ls__utf8_decode((const uint8_t *)bad[i], strlen(bad[i]), &code), 0);
        char text[64];
        for (size_t before = 0; before < 20; before++) {
            memset(text, 'a', sizeof text);
            memcpy(text + before, bad[i], strlen(bad[i]));
            assert_int_equal(ls__utf8_valid((const uint8_t *)text, sizeof text), before);
        }
    }
    assert_int_equal(ls__utf8_valid((const uint8_t *)"", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
