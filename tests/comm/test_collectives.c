/* Every collective, type and size class, on private and communicator buffers, against a plain
 * reference that walks the same tree one element at a time. */
#include "helper_ranks.h"
#include "testing.h"

#include "base/random.h"

/* Element i of rank r's input: small integers and, for floats, fractions whose sums round. */
static double value(int r, int64_t i, ls_dtype type)
{
    uint32_t mixed = (uint32_t)(r * 7919 + 13) * 2654435761u + (uint32_t)i * 40503u;
    mixed ^= mixed >> 15;
    if (type == LS_DTYPE_F32 || type == LS_DTYPE_F64) return (double)(mixed % 20011) / 7.0 - 999.0;
    if (type == LS_DTYPE_BF16) return (double)(mixed % 257) / 8.0 - 16.0;
    return (double)(mixed % 200);
}

static float bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static uint16_t bf16_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store(void *array, int64_t i, ls_dtype type, double x)
{
    switch (type) {
    case LS_DTYPE_F32:
        ((float *)array)[i] = (float)x;
        break;
    case LS_DTYPE_F64:
        ((double *)array)[i] = x;
        break;
    case LS_DTYPE_BF16:
        ((uint16_t *)array)[i] = bf16_bits((float)x);
        break;
    case LS_DTYPE_U8:
        ((uint8_t *)array)[i] = (uint8_t)x;
        break;
    case LS_DTYPE_I32:
        ((int32_t *)array)[i] = (int32_t)x - 100;
        break;
    case LS_DTYPE_I64:
        ((int64_t *)array)[i] = (int64_t)x - 100;
        break;
    case LS_DTYPE_U64:
        ((uint64_t *)array)[i] = (uint64_t)x;
        break;
    }
}

#define REFERENCE(T, a, b)                                                                         \
    (op == LS_REDUCE_SUM   ? (T)((a) + (b))                                                        \
     : op == LS_REDUCE_MIN ? ((a) < (b) ? (a) : (b))                                               \
                           : ((a) > (b) ? (a) : (b)))

/* The tree over ranks [first, first + span) of element i, as one number of a wide enough type. */
#define TREE(NAME, T, LOAD)                                                                        \
    static T NAME(int first, int span, int size, int64_t i, ls_dtype type, ls_reduce op)           \
    {                                                                                              \
        if (span == 1) {                                                                           \
            unsigned char raw[8] = { 0 };                                                          \
            store(raw, 0, type, value(first, i, type));                                            \
            return LOAD;                                                                           \
        }                                                                                          \
        T left = NAME(first, span / 2, size, i, type, op);                                         \
        if (first + span / 2 >= size) return left;                                                 \
        T right = NAME(first + span / 2, span / 2, size, i, type, op);                             \
        return REFERENCE(T, left, right);                                                          \
    }

static uint16_t load16(const unsigned char *raw)
{
    uint16_t x;
    memcpy(&x, raw, sizeof x);
    return x;
}
#define LOADER(T)                                                                                  \
    static T load_##T(const unsigned char *raw)                                                    \
    {                                                                                              \
        T x;                                                                                       \
        memcpy(&x, raw, sizeof x);                                                                 \
        return x;                                                                                  \
    }
LOADER(float)
LOADER(double)
LOADER(uint8_t)
LOADER(int32_t)
LOADER(int64_t)
LOADER(uint64_t)

TREE(tree_f32, float, load_float(raw))
TREE(tree_f64, double, load_double(raw))
TREE(tree_bf16, float, bf16_value(load16(raw)))
TREE(tree_u8, uint8_t, load_uint8_t(raw))
TREE(tree_i32, int32_t, load_int32_t(raw))
TREE(tree_i64, int64_t, load_int64_t(raw))
TREE(tree_u64, uint64_t, load_uint64_t(raw))

/* The bytes that element i of the reduction must have. */
static void expect(int size, int64_t i, ls_dtype type, ls_reduce op, unsigned char out[8])
{
    int span = 1;
    while (span < size) span *= 2;
#define PUT(T, x)                                                                                  \
    do {                                                                                           \
        T put = (x);                                                                               \
        memcpy(out, &put, sizeof put);                                                             \
    } while (0)
    switch (type) {
    case LS_DTYPE_F32:
        PUT(float, tree_f32(0, span, size, i, type, op));
        break;
    case LS_DTYPE_F64:
        PUT(double, tree_f64(0, span, size, i, type, op));
        break;
    case LS_DTYPE_BF16:
        PUT(uint16_t, bf16_bits(tree_bf16(0, span, size, i, type, op)));
        break;
    case LS_DTYPE_U8:
        PUT(uint8_t, tree_u8(0, span, size, i, type, op));
        break;
    case LS_DTYPE_I32:
        PUT(int32_t, tree_i32(0, span, size, i, type, op));
        break;
    case LS_DTYPE_I64:
        PUT(int64_t, tree_i64(0, span, size, i, type, op));
        break;
    case LS_DTYPE_U64:
        PUT(uint64_t, tree_u64(0, span, size, i, type, op));
        break;
    }
#undef PUT
}

typedef struct shape {
    int64_t count;
    ls_dtype type;
    ls_reduce op;
} shape;

/* Where the buffers of a case lie. */
typedef enum memory {
    PRIVATE,
    SHARED,
    MIXED /* rank 0's are private, the others' shared */
} memory;

typedef struct buffers {
    unsigned char *in, *out; /* (size * count + a guard) each */
    size_t nbytes;
    bool shared;
} buffers;

enum { GUARD = 64 };

static bool make_buffers(test_rank *t, const shape *s, memory where, buffers *b)
{
    void *in, *out;
    b->nbytes = (size_t)(s->count * t->size) * ls_dtype_size(s->type) + GUARD;
    b->shared = where == SHARED || (where == MIXED && t->rank > 0);
    if (where != PRIVATE) { /* collective */
        if (ls_comm_alloc(t->comm, b->nbytes, &in) != LS_OK) return false;
        if (ls_comm_alloc(t->comm, b->nbytes, &out) != LS_OK) return false;
    }
    b->in = b->shared ? in : calloc(1, b->nbytes);
    b->out = b->shared ? out : calloc(1, b->nbytes);
    return b->in && b->out;
}

static void free_buffers(buffers *b)
{
    if (b->shared) return; /* freed with the communicator */
    free(b->in);
    free(b->out);
}

static bool guarded(const buffers *b, size_t used)
{
    for (size_t i = used; i < used + GUARD; i++)
        if (b->out[i] != 0xa5) return false;
    return true;
}

static void fill(const test_rank *t, const shape *s, buffers *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) store(b->in, i, s->type, value(t->rank, i, s->type));
    memset(b->out, 0xa5, b->nbytes);
}

static void check_all_reduce(test_rank *t, const shape *s, buffers *b)
{
    size_t element = ls_dtype_size(s->type);
    fill(t, s, b, s->count);
    RANK_OK(t, ls_comm_all_reduce(t->comm, b->in, b->out, s->count, s->type, s->op));
    for (int64_t i = 0; i < s->count; i++) {
        unsigned char want[8];
        expect(t->size, i, s->type, s->op, want);
        RANK_CHECK(t, memcmp(want, b->out + (size_t)i * element, element) == 0);
    }
    RANK_CHECK(t, guarded(b, (size_t)s->count * element));
    RANK_OK(t, ls_comm_all_reduce(t->comm, b->in, b->in, s->count, s->type, s->op));
    RANK_CHECK(t, memcmp(b->in, b->out, (size_t)s->count * element) == 0);
}

static void check_reduce_scatter(test_rank *t, const shape *s, buffers *b)
{
    size_t element = ls_dtype_size(s->type);
    fill(t, s, b, s->count * t->size);
    RANK_OK(t, ls_comm_reduce_scatter(t->comm, b->in, b->out, s->count, s->type, s->op));
    for (int64_t i = 0; i < s->count; i++) {
        unsigned char want[8];
        expect(t->size, t->rank * s->count + i, s->type, s->op, want);
        RANK_CHECK(t, memcmp(want, b->out + (size_t)i * element, element) == 0);
    }
    RANK_CHECK(t, guarded(b, (size_t)s->count * element));
}

static void check_all_gather(test_rank *t, const shape *s, buffers *b)
{
    size_t element = ls_dtype_size(s->type), part = (size_t)s->count * element;
    fill(t, s, b, s->count);
    RANK_OK(t, ls_comm_all_gather(t->comm, b->in, b->out, s->count, s->type));
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < t->size; r++)
            for (int64_t i = 0; i < s->count; i++) {
                unsigned char want[8];
                store(want, 0, s->type, value(r, i, s->type));
                RANK_CHECK(
                    t, memcmp(want, b->out + (size_t)r * part + (size_t)i * element, element) == 0);
            }
        RANK_CHECK(t, guarded(b, (size_t)t->size * part));
        for (int r = 0; r < t->size; r++)
            if (r != t->rank) memset(b->out + (size_t)r * part, 0, part);
        RANK_OK(t, ls_comm_all_gather(t->comm, b->out + (size_t)t->rank * part, b->out, s->count,
                                      s->type));
    }
}

static void check_broadcast(test_rank *t, const shape *s, buffers *b)
{
    size_t element = ls_dtype_size(s->type);
    for (int root = 0; root < t->size; root++) {
        memset(b->out, 0xa5, b->nbytes);
        if (t->rank == root)
            for (int64_t i = 0; i < s->count; i++)
                store(b->out, i, s->type, value(root, i, s->type));
        RANK_OK(t, ls_comm_broadcast(t->comm, b->out, s->count, s->type, root));
        for (int64_t i = 0; i < s->count; i++) {
            unsigned char want[8];
            store(want, 0, s->type, value(root, i, s->type));
            RANK_CHECK(t, memcmp(want, b->out + (size_t)i * element, element) == 0);
        }
        RANK_CHECK(t, guarded(b, (size_t)s->count * element));
    }
}

static void check_shape(test_rank *t, const shape *s, memory where)
{
    buffers b;
    RANK_CHECK(t, make_buffers(t, s, where, &b));
    check_all_reduce(t, s, &b);
    check_reduce_scatter(t, s, &b);
    check_all_gather(t, s, &b);
    check_broadcast(t, s, &b);
    free_buffers(&b);
}

/* Counts on both sides of every limit: inline, one shot, one chunk, many chunks of tiny slots. */
static void many_counts(test_rank *t)
{
    static const int64_t counts[] = { 0, 1, 2, 12, 13, 63, 64, 65, 257, 1000, 4099, 9001 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (memory where = PRIVATE; where <= MIXED; where++)
            check_shape(t, &(shape) { counts[c], LS_DTYPE_F32, LS_REDUCE_SUM }, where);
}

static void many_types(test_rank *t)
{
    for (ls_dtype type = LS_DTYPE_F32; type <= LS_DTYPE_U64; type++)
        for (ls_reduce op = LS_REDUCE_SUM; op <= LS_REDUCE_MAX; op++) {
            check_shape(t, &(shape) { 5, type, op }, PRIVATE);
            check_shape(t, &(shape) { 1531, type, op }, PRIVATE);
            check_shape(t, &(shape) { 1531, type, op }, SHARED);
        }
}

static const int sizes[] = { 1, 2, 3, 4, 8 };
enum { NSIZES = sizeof sizes / sizeof sizes[0] };

static void test_counts(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++) {
        run_ranks(sizes[i], &(ranks_options) { .arena = 1024 }, many_counts, NULL);
        if (sizes[i] < 4) run_ranks(sizes[i], NULL, many_counts, NULL);
    }
    run_ranks_on_nodes(&(ranks_options) { .arena = 1024 }, many_counts, NULL);
    run_ranks_on_nodes(NULL, many_counts, NULL);
}

static void test_types(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++)
        run_ranks(sizes[i], &(ranks_options) { .arena = 640 }, many_types, NULL);
    run_ranks_on_nodes(&(ranks_options) { .arena = 640 }, many_types, NULL);
}

/* Calls of all kinds one after another without a pause, so that ranks run ahead of each other. */
static void mixed_calls(test_rank *t)
{
    enum { COUNT = 700 };
    int64_t *data = malloc(sizeof *data * COUNT * (size_t)t->size);
    ls_rng rng; /* the same on every rank */
    ls__rng_init(&rng, 5, "calls", 0, 0);
    for (int i = 0; i < 400; i++) {
        int64_t count = ls_rng_below(&rng, 4) == 0 ? COUNT : ls_rng_below(&rng, 8);
        int root = (int)ls_rng_below(&rng, t->size);
        for (int64_t j = 0; j < count; j++) data[j] = t->rank + j + i;
        int64_t sum = (int64_t)t->size * (t->size - 1) / 2 + t->size * (int64_t)i;
        switch (ls_rng_below(&rng, 4)) {
        case 0:
            RANK_OK(t, ls_comm_all_reduce(t->comm, data, data, count, LS_DTYPE_I64, LS_REDUCE_SUM));
            for (int64_t j = 0; j < count; j++) RANK_CHECK(t, data[j] == sum + t->size * j);
            break;
        case 1:
            RANK_OK(t, ls_comm_broadcast(t->comm, data, count, LS_DTYPE_I64, root));
            for (int64_t j = 0; j < count; j++) RANK_CHECK(t, data[j] == root + j + i);
            break;
        case 2:
            RANK_OK(t, ls_comm_barrier(t->comm));
            break;
        default:
            data[t->rank] = t->rank + i;
            RANK_OK(t, ls_comm_all_gather(t->comm, data + t->rank, data, 1, LS_DTYPE_I64));
            for (int r = 0; r < t->size; r++) RANK_CHECK(t, data[r] == r + i);
            break;
        }
    }
    free(data);
}

static void test_mixed_calls(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++)
        run_ranks(sizes[i], &(ranks_options) { .arena = 512 }, mixed_calls, NULL);
    run_ranks_on_nodes(&(ranks_options) { .arena = 512 }, mixed_calls, NULL);
}

/* Several started, waited for in order, a plain call between. */
static void works(test_rank *t)
{
    enum { COUNT = 3000 };
    static const int64_t counts[] = { 3, COUNT, 1, 500 };
    float *data[4];
    ls_work *work[4];
    for (int i = 0; i < 4; i++) {
        data[i] = malloc(sizeof(float) * COUNT);
        for (int64_t j = 0; j < counts[i]; j++) data[i][j] = (float)(t->rank + i);
        RANK_OK(t, ls_comm_all_reduce_start(t->comm, data[i], data[i], counts[i], LS_DTYPE_F32,
                                            LS_REDUCE_MAX, &work[i]));
    }
    RANK_OK(t, ls_work_wait(work[0]));
    float root = (float)t->rank;
    RANK_OK(t, ls_comm_broadcast(t->comm, &root, 1, LS_DTYPE_F32, t->size - 1));
    RANK_CHECK(t, root == (float)(t->size - 1));
    for (int i = 1; i < 4; i++) RANK_OK(t, ls_work_wait(work[i]));
    for (int i = 0; i < 4; i++) {
        for (int64_t j = 0; j < counts[i]; j++)
            RANK_CHECK(t, data[i][j] == (float)(t->size - 1 + i));
        free(data[i]);
    }
}

static void other_works(test_rank *t)
{
    float mine[4] = { (float)t->rank, 1, 2, 3 }, all[32], part[1];
    float *in = calloc((size_t)t->size, sizeof *in);
    ls_work *work[3];
    RANK_OK(t, ls_comm_all_gather_start(t->comm, mine, all, 4, LS_DTYPE_F32, &work[0]));
    RANK_OK(t, ls_comm_reduce_scatter_start(t->comm, in, part, 1, LS_DTYPE_F32, LS_REDUCE_SUM,
                                            &work[1]));
    RANK_OK(t, ls_comm_broadcast_start(t->comm, mine, 4, LS_DTYPE_F32, 0, &work[2]));
    for (int i = 0; i < 3; i++) RANK_OK(t, ls_work_wait(work[i]));
    for (int r = 0; r < t->size; r++) RANK_CHECK(t, all[4 * r] == (float)r);
    RANK_CHECK(t, part[0] == 0 && mine[0] == 0);
    free(in);
}

static void test_works(void **state)
{
    (void)state;
    for (int i = 0; i < NSIZES; i++) {
        run_ranks(sizes[i], &(ranks_options) { .arena = 512 }, works, NULL);
        run_ranks(sizes[i], NULL, other_works, NULL);
    }
    run_ranks_on_nodes(&(ranks_options) { .arena = 512 }, works, NULL);
}

/* Everybody sends to everybody, lower rank first, in all size classes. */
static void pairs(test_rank *t)
{
    static const int64_t counts[] = { 0, 1, 100, 5000 };
    void *shared;
    RANK_OK(t, ls_comm_alloc(t->comm, 5000 * sizeof(int32_t), &shared));
    int32_t *private = malloc(5000 * sizeof(int32_t));
    for (int round = 0; round < 8; round++) {
        int64_t count = counts[round % 4];
        int32_t *data = round < 4 ? private : shared;
        for (int a = 0; a < t->size; a++)
            for (int b = 0; b < t->size; b++) {
                if (a == b || (t->rank != a && t->rank != b)) continue;
                if (t->rank == a) {
                    for (int64_t i = 0; i < count; i++) data[i] = a * 1000 + b + (int32_t)i;
                    RANK_OK(t, ls_comm_send(t->comm, data, count, LS_DTYPE_I32, b));
                } else {
                    RANK_OK(t, ls_comm_recv(t->comm, data, count, LS_DTYPE_I32, a));
                    for (int64_t i = 0; i < count; i++)
                        RANK_CHECK(t, data[i] == a * 1000 + b + (int32_t)i);
                }
            }
    }
    free(private);
}

static void test_pairs(void **state)
{
    (void)state;
    for (int i = 1; i < NSIZES; i++)
        run_ranks(sizes[i], &(ranks_options) { .arena = 1000 }, pairs, NULL);
    run_ranks_on_nodes(&(ranks_options) { .arena = 1000 }, pairs, NULL);
}

static void wrong_arguments(test_rank *t)
{
    float x = 0;
    RANK_FAILS(t, ls_comm_all_reduce(t->comm, &x, &x, -1, LS_DTYPE_F32, LS_REDUCE_SUM), LS_ERR_ARG,
               "count of -1");
    RANK_FAILS(t, ls_comm_all_reduce(t->comm, NULL, &x, 1, LS_DTYPE_F32, LS_REDUCE_SUM), LS_ERR_ARG,
               "NULL buffer");
    RANK_FAILS(t, ls_comm_all_reduce(t->comm, &x, &x, 1, (ls_dtype)99, LS_REDUCE_SUM), LS_ERR_ARG,
               "no element type");
    RANK_FAILS(t, ls_comm_broadcast(t->comm, &x, 1, LS_DTYPE_F32, t->size), LS_ERR_ARG,
               "is not in [0");
    RANK_FAILS(t, ls_comm_send(t->comm, &x, 1, LS_DTYPE_F32, t->rank), LS_ERR_ARG, "itself");
    RANK_FAILS(t, ls_work_wait(NULL), LS_ERR_ARG, "no work");
    RANK_OK(t, ls_comm_barrier(t->comm));
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    run_ranks(1, NULL, wrong_arguments, NULL);
    run_ranks(2, NULL, wrong_arguments, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),      cmocka_unit_test(test_types),
        cmocka_unit_test(test_mixed_calls), cmocka_unit_test(test_works),
        cmocka_unit_test(test_pairs),       cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
