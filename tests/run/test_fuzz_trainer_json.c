/* Mutated trainer.json files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_trainer_json.c"

int main(void)
{
    static const char seed[] =
        "{\"schema\":\"lockstep.trainer/1\",\"step\":7,\"position\":84,\"updates\":7,"
        "\"data_length\":100,\"micro_batches\":4,\"finished\":null,\"planned_steps\":20,"
        "\"best\":{\"monitor\":\"val/loss\",\"mode\":\"min\",\"best\":0.5,\"best_step\":5,"
        "\"waited\":1},\"early_stop\":null,\"interval\":[[\"train/loss\",1.5,12.0]],"
        "\"values\":{\"train/loss\":0.7,\"val/loss\":null},\"callbacks\":{\"cb\":"
        "\"0001020304\"},\"kept\":{\"count\":\"0a0b0c\"},\"configuration\":{\"batch_size\":"
        "{\"value\":12,\"origin\":\"program\"}}}";
    fuzz_seed(seed, sizeof seed - 1, 20000);
    return 0;
}
