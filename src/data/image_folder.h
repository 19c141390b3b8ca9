/* The files of a folder of pictures with a sub-folder per class. */
#ifndef LS_DATA_IMAGE_FOLDER_H
#define LS_DATA_IMAGE_FOLDER_H

#include <lockstep/base.h>

typedef struct ls__image_entry {
    size_t path;   /* where in paths: relative to the folder, NUL-ended */
    int32_t label; /* of classes */
} ls__image_entry;

typedef struct ls__image_folder {
    char *folder;
    char **classes; /* (nclasses) by name */
    int64_t nclasses;
    ls__image_entry *entries; /* (count) by class, then by path */
    int64_t count, room;
    char *paths;
    size_t used, paths_room;
    int64_t ignored; /* files that are not pictures by their name */
    char *ignored_example;
} ls__image_folder;

/* Names only: no file is opened. All errors are LS_ERR_DATA or LS_ERR_MEMORY. */
ls_status ls__image_folder_open(const char *folder, ls__image_folder *out);
void ls__image_folder_close(ls__image_folder *folder);

#endif
