/* lockstep train image: the recipe is the command. */
#include "cli/cli.h"
#include "recipe/image.h"

int ls_cli_train_image(int argc, char **argv)
{
    return recipe_image_train(argc, argv);
}
