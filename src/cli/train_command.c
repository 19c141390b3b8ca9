/* lockstep train image|gpt|table: the recipe is the command. */
#include "cli/cli.h"
#include "recipe/gpt.h"
#include "recipe/image.h"
#include "recipe/table.h"

int ls_cli_train_image(int argc, char **argv)
{
    return recipe_image_train(argc, argv);
}

int ls_cli_train_gpt(int argc, char **argv)
{
    return recipe_gpt_train(argc, argv);
}

int ls_cli_train_table(int argc, char **argv)
{
    return recipe_table_train(argc, argv);
}
