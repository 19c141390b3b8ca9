/* The operations' table: each family's rows, found by the operation's address. */
#include "backend/cuda/cuda_executable.h"

static const cuda_op *const families[] = {
    ls__cuda_elementwise_ops, ls__cuda_linear_ops, ls__cuda_rows_ops,    ls__cuda_attention_ops,
    ls__cuda_loss_ops,        ls__cuda_image_ops,  ls__cuda_general_ops,
};

const cuda_op *ls__cuda_op(const ls_op *op)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const cuda_op *row = families[f]; row->op; row++)
            if (row->op == op) return row;
    return NULL;
}
