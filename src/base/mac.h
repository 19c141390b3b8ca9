/* Who knows a secret, and proves it without saying it: a challenge is answered with a message
 * authentication code (HMAC-SHA256, RFC 2104, by Nettle). For sockets that listen beyond this machine.
 *
 *     caller: nonce_c  ->  listener: nonce_l, mac(secret, "listener", nonce_c, nonce_l)
 *     caller: mac(secret, "caller", nonce_c, nonce_l)  ->  listener
 *
 * so each side knows that the other one has the secret. What follows is not encrypted. */
#ifndef LS_BASE_MAC_H
#define LS_BASE_MAC_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/base.h>

enum {
    LS__MAC_BYTES = 32,
    LS__NONCE_BYTES = 16,
    LS__SECRET_TEXT = 33, /* a secret that we make: 32 hexadecimal digits, NUL */
    LS__SECRET_MAX = 256, /* bytes of one that others make */
};

/* Of who says it and both nonces. secret: any text. */
void ls__mac(const char *secret, const char *who, const uint8_t nonce_c[LS__NONCE_BYTES],
             const uint8_t nonce_l[LS__NONCE_BYTES], uint8_t out[LS__MAC_BYTES]);
/* In a time that does not depend on where they differ. */
bool ls__mac_equal(const uint8_t a[LS__MAC_BYTES], const uint8_t b[LS__MAC_BYTES]);

/* By the kernel's generator. */
ls_status ls__random_bytes(void *out, size_t nbytes);
ls_status ls__secret_make(char out[LS__SECRET_TEXT]);
/* A secret for another purpose, from which nobody learns this one. */
void ls__secret_derive(const char *secret, const char *purpose, char out[LS__SECRET_TEXT]);

#endif
