/* Challenge and answer. The parts are of fixed length behind a text that ends with NUL, so no two
 * different questions are the same bytes. Expected: a few thousand at the start of a job. */
#include "base/mac.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <nettle/hmac.h>
#include <nettle/memops.h>

#include "base/check.h"

static void key_of(struct hmac_sha256_ctx *context, const char *secret, const char *who)
{
    hmac_sha256_set_key(context, strlen(secret), (const uint8_t *)secret);
    hmac_sha256_update(context, strlen(who) + 1, (const uint8_t *)who);
}

void ls__mac(const char *secret, const char *who, const uint8_t nonce_c[LS__NONCE_BYTES],
             const uint8_t nonce_l[LS__NONCE_BYTES], uint8_t out[LS__MAC_BYTES])
{
    struct hmac_sha256_ctx context;
    key_of(&context, secret, who);
    hmac_sha256_update(&context, LS__NONCE_BYTES, nonce_c);
    hmac_sha256_update(&context, LS__NONCE_BYTES, nonce_l);
    hmac_sha256_digest(&context, LS__MAC_BYTES, out);
}

bool ls__mac_equal(const uint8_t a[LS__MAC_BYTES], const uint8_t b[LS__MAC_BYTES])
{
    return memeql_sec(a, b, LS__MAC_BYTES) != 0;
}

ls_status ls__random_bytes(void *out, size_t nbytes)
{
    char *at = out;
    while (nbytes > 0) {
        ssize_t n = getrandom(at, nbytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_INTERNAL, "getrandom");
        at += n;
        nbytes -= (size_t)n;
    }
    return LS_OK;
}

static void hexadecimal(const uint8_t *bytes, char out[LS__SECRET_TEXT])
{
    for (int i = 0; i < (LS__SECRET_TEXT - 1) / 2; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

ls_status ls__secret_make(char out[LS__SECRET_TEXT])
{
    uint8_t bytes[LS__NONCE_BYTES];
    LS_TRY(ls__random_bytes(bytes, sizeof bytes));
    hexadecimal(bytes, out);
    return LS_OK;
}

void ls__secret_derive(const char *secret, const char *purpose, char out[LS__SECRET_TEXT])
{
    struct hmac_sha256_ctx context;
    uint8_t bytes[LS__MAC_BYTES];
    key_of(&context, secret, purpose);
    hmac_sha256_digest(&context, LS__MAC_BYTES, bytes);
    hexadecimal(bytes, out);
}
