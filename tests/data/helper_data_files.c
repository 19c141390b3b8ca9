/* Small data files for tests. */
#include "helper_data_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { NFILES_MAX = 64 };
static char folder[64];
static char written[NFILES_MAX][128];
static int nwritten;

static void remove_all(void)
{
    for (int i = 0; i < nwritten; i++) unlink(written[i]);
    rmdir(folder);
}

static void check(int good, const char *what)
{
    if (good) return;
    perror(what);
    exit(1);
}

const char *test_path(const char *name)
{
    static char paths[8][128];
    static int next;
    if (!folder[0]) {
        strcpy(folder, "/tmp/lockstep-data-XXXXXX");
        check(mkdtemp(folder) != NULL, folder);
        atexit(remove_all);
    }
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *note(const char *path)
{
    for (int i = 0; i < nwritten; i++)
        if (strcmp(written[i], path) == 0) return path;
    check(nwritten < NFILES_MAX, "too many files");
    strcpy(written[nwritten++], path);
    return path;
}

const char *write_file(const char *name, const void *data, size_t nbytes)
{
    const char *path = note(test_path(name));
    FILE *f = fopen(path, "wb");
    check(f && fwrite(data, 1, nbytes, f) == nbytes && fclose(f) == 0, path);
    return path;
}

const char *write_gzip(const char *name, const void *data, size_t nbytes)
{
    const char *path = note(test_path(name));
    gzFile f = gzopen(path, "wb6");
    check(f && gzwrite(f, data, (unsigned)nbytes) == (int)nbytes && gzclose(f) == Z_OK, path);
    return path;
}

static size_t put_element(uint8_t *out, uint8_t type, uint8_t value)
{
    float f = value;
    double d = value;
    uint32_t f_bits;
    uint64_t d_bits;
    memcpy(&f_bits, &f, sizeof f_bits);
    memcpy(&d_bits, &d, sizeof d_bits);
    size_t size = type == 0x0E ? 8 : type >= 0x0C ? 4 : type == 0x0B ? 2 : 1;
    uint64_t bits = type == 0x0E ? d_bits : type == 0x0D ? f_bits : value;
    for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(bits >> 8 * (size - 1 - i));
    return size;
}

size_t make_idx(uint8_t *out, uint8_t type, int rank, const uint32_t *shape)
{
    size_t n = 0, count = 1;
    out[n++] = 0;
    out[n++] = 0;
    out[n++] = type;
    out[n++] = (uint8_t)rank;
    for (int i = 0; i < rank; i++) {
        for (int shift = 24; shift >= 0; shift -= 8) out[n++] = (uint8_t)(shape[i] >> shift);
        count *= shape[i];
    }
    for (size_t i = 0; i < count; i++) n += put_element(out + n, type, (i * 7 + 3) & 0x7F);
    return n;
}

size_t make_npy(uint8_t *out, int major, const char *literal, const void *values, size_t nbytes)
{
    size_t begin = major == 1 ? 10 : 12, length = strlen(literal) + 1;
    length += (64 - (begin + length) % 64) % 64;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)major;
    out[7] = 0;
    for (size_t i = 8; i < begin; i++) out[i] = (uint8_t)(length >> 8 * (i - 8));
    memset(out + begin, ' ', length);
    memcpy(out + begin, literal, strlen(literal));
    out[begin + length - 1] = '\n';
    if (nbytes) memcpy(out + begin + length, values, nbytes);
    return begin + length + nbytes;
}

size_t make_shard(uint8_t *out, int32_t magic, int32_t version, int32_t promised, int32_t count)
{
    enum { LLAMA3 = 20240801, HEADER = 1024 };
    size_t size = magic == LLAMA3 ? 4 : 2;
    memset(out, 0, HEADER);
    memcpy(out, (int32_t[]) { magic, version, promised }, 12);
    for (int32_t i = 0; i < count; i++) {
        int32_t token = i * 7 + 3;
        memcpy(out + HEADER + (size_t)i * size, &token, size);
    }
    return HEADER + (size_t)count * size;
}

long resident_file_kilobytes(void)
{
    char line[256];
    long kilobytes = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) (void)sscanf(line, "RssFile: %ld", &kilobytes);
    if (f) fclose(f);
    return kilobytes;
}
