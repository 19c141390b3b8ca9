/* Small data files for tests, in a folder of the test's own that goes at its end. */
#ifndef LS_HELPER_DATA_FILES_H
#define LS_HELPER_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

/* Path of name in this test's folder; overwritten by the eighth call after. */
const char *test_path(const char *name);
/* Both return test_path(name). */
const char *write_file(const char *name, const void *data, size_t nbytes);
const char *write_gzip(const char *name, const void *data, size_t nbytes);

/* An IDX file's bytes; element i of the values is (i * 7 + 3) & 0x7F, stored as type. Returns the
 * size. */
size_t make_idx(uint8_t *out, uint8_t type, int rank, const uint32_t *shape);
/* A .npy file's bytes around values. */
size_t make_npy(uint8_t *out, int major, const char *literal, const void *values, size_t nbytes);
/* A shard of llm.c whose header promises `promised` tokens and which has `count`: token i is i * 7 +
 * 3. Wide when magic is Llama 3's. */
size_t make_shard(uint8_t *out, int32_t magic, int32_t version, int32_t promised, int32_t count);
/* Kilobytes of this process's resident memory that are pages of files; -1 where the kernel does not
 * say. */
long resident_file_kilobytes(void);

#endif
