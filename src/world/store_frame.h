/* Frames: what ranks, supervisor and local root say to each other over a stream socket.
 *
 *     bytes  0      4     5       6       8      12       20        20+k        20+k+n
 *            | rest | type | status | k     | id   | number | key (k) | value (n) |
 *            | u32  | u8   | u8     | u16   | u32  | i64    |
 *
 * Little endian; rest counts the bytes behind itself. A request carries an id that its reply
 * repeats; control frames have id 0. */
#ifndef LS_WORLD_STORE_FRAME_H
#define LS_WORLD_STORE_FRAME_H

#include <lockstep/base.h>

typedef enum ls__frame_type {
    LS__FRAME_SET = 1, /* key, value */
    LS__FRAME_GET,     /* key; answered when the key is there */
    LS__FRAME_ADD,     /* key, number */
    LS__FRAME_DELETE,  /* key of a value, or of nothing */
    LS__FRAME_BARRIER, /* key, number = count; answered when that many have come */
    LS__FRAME_CANCEL,  /* id of a get or barrier whose time is over; that one is answered */
    LS__FRAME_REPLY,   /* status, number, value (a text when the status is an error) */

    LS__FRAME_CALL,      /* over TCP before hello; value = nonce; answered by a challenge */
    LS__FRAME_CHALLENGE, /* value = nonce and proof of the secret; empty = there is none */
    LS__FRAME_HELLO, /* number = size and rank, key = the job, value = proof of the secret, if any,
                            then who it is; answered: number = the rank that serves */

    LS__FRAME_GOODBYE,    /* number = exit code: the rank left as it should */
    LS__FRAME_FAILED,     /* status, value = text: ls_check is about to exit */
    LS__FRAME_ABORT,      /* value = text: ls_world_abort */
    LS__FRAME_SIGNAL,     /* number: the rank got this signal itself */
    LS__FRAME_PROGRESS,   /* value = text of the progress line */
    LS__FRAME_CHECKPOINT, /* value = path of the newest complete one */
    LS__FRAME_FOLDER,     /* value = path of the run's folder */

    LS__FRAME_POISON, /* to ranks: number = the lost rank or -1, value = text */
    LS__FRAME_END,    /* to ranks: exit at once with code number */

    /* Between the roots of machines: */
    LS__FRAME_RELAY,  /* number = rank; value = a request of this rank, or the reply to one */
    LS__FRAME_JOINED, /* number = rank, which is on the sender's machine */
    LS__FRAME_ENDED,  /* number = rank, value = how the job ends: see end_frame.h */
    LS__FRAME_STOP,   /* number = the signal that asks for it */
    LS__FRAME_DONE, /* number = exit code: all ranks of the machine left as they should; answered by
                         the same */
    LS__FRAME_BEAT, /* a sign of life */
    LS__FRAME_TYPES
} ls__frame_type;

enum {
    LS__FRAME_HEADER = 20,
    LS__KEY_MAX = 255,
    LS__VALUE_MAX = 1 << 20,
    LS__FRAME_MAX = LS__FRAME_HEADER + LS__KEY_MAX + LS__VALUE_MAX,
    LS__RELAY_MAX = LS__FRAME_HEADER + LS__FRAME_MAX, /* a frame in a frame */
};

typedef struct ls__frame {
    ls__frame_type type;
    ls_status status;
    uint32_t id;
    int64_t number;
    const char *key; /* (key_nbytes) not ended by NUL; borrowed */
    size_t key_nbytes;
    const char *value; /* (nbytes); borrowed */
    size_t nbytes;
} ls__frame;

/* The first frame in data. *used = 0 when it is not complete yet. LS_ERR_DATA: not a frame; the
 * connection cannot go on. frame borrows data. */
ls_status ls__frame_parse(const void *data, size_t nbytes, ls__frame *frame, size_t *used);

/* Bytes of the frame on the wire; asserts that its parts are within their limits. */
size_t ls__frame_size(const ls__frame *frame);
/* out: (ls__frame_size). The value may lie in its place already. */
void ls__frame_write(const ls__frame *frame, void *out);

/* A copy of the value that ends with NUL and holds at most limit - 1 bytes, control characters
 * other than newline and tab replaced: frames come from programs we did not write. */
void ls__frame_text(const ls__frame *frame, char *out, size_t limit);

/* Bytes that came from a stream, or wait to go there. */
typedef struct ls__bytes {
    char *data;
    size_t begin, end, capacity;
} ls__bytes;

/* Room for nbytes more behind end; LS_ERR_MEMORY. */
ls_status ls__bytes_reserve(ls__bytes *bytes, size_t nbytes);
ls_status ls__bytes_append_frame(ls__bytes *bytes, const ls__frame *frame);
/* The frame inside a RELAY frame of this rank. */
ls_status ls__bytes_append_relay(ls__bytes *bytes, int rank, const ls__frame *inner);
void ls__bytes_free(ls__bytes *bytes);

#endif
