/* Codes that prove a secret: a vector of RFC 4231 for the library's HMAC, and that every part counts. */
#include "testing.h"

#include <string.h>

#include <nettle/hmac.h>

#include "base/mac.h"

static void the_library_computes_the_standard(void **state)
{
    (void)state;
    /* RFC 4231, test case 2 */
    static const uint8_t expected[] = { 0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                        0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                        0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                        0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43 };
    char secret[LS__SECRET_TEXT];
    ls__secret_derive("Jefe", "what do ya want for nothing?", secret);
    assert_int_equal(strlen(secret), LS__SECRET_TEXT - 1);
    struct hmac_sha256_ctx context;
    uint8_t got[LS__MAC_BYTES];
    hmac_sha256_set_key(&context, 4, (const uint8_t *)"Jefe");
    hmac_sha256_update(&context, 28, (const uint8_t *)"what do ya want for nothing?");
    hmac_sha256_digest(&context, sizeof got, got);
    assert_memory_equal(got, expected, sizeof got);
}

static void every_part_counts(void **state)
{
    (void)state;
    uint8_t c[LS__NONCE_BYTES], l[LS__NONCE_BYTES], a[LS__MAC_BYTES], b[LS__MAC_BYTES];
    assert_ok(ls__random_bytes(c, sizeof c));
    assert_ok(ls__random_bytes(l, sizeof l));
    assert_memory_not_equal(c, l, sizeof c);
    ls__mac("secret", "caller", c, l, a);
    ls__mac("secret", "caller", c, l, b);
    assert_true(ls__mac_equal(a, b));
    ls__mac("Secret", "caller", c, l, b);
    assert_false(ls__mac_equal(a, b));
    ls__mac("secret", "listener", c, l, b);
    assert_false(ls__mac_equal(a, b));
    c[15] ^= 1;
    ls__mac("secret", "caller", c, l, b);
    assert_false(ls__mac_equal(a, b));
    c[15] ^= 1;
    l[0] ^= 128;
    ls__mac("secret", "caller", c, l, b);
    assert_false(ls__mac_equal(a, b));
}

static void secrets_differ(void **state)
{
    (void)state;
    char a[LS__SECRET_TEXT], b[LS__SECRET_TEXT], c[LS__SECRET_TEXT];
    assert_ok(ls__secret_make(a));
    assert_ok(ls__secret_make(b));
    assert_string_not_equal(a, b);
    assert_int_equal(strspn(a, "0123456789abcdef"), LS__SECRET_TEXT - 1);
    ls__secret_derive(a, "ranks", b);
    ls__secret_derive(a, "ranks", c);
    assert_string_equal(b, c);
    ls__secret_derive(a, "other", c);
    assert_string_not_equal(b, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_computes_the_standard),
        cmocka_unit_test(every_part_counts),
        cmocka_unit_test(secrets_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
