/* Class activation maps as images: where in an image a network saw a class (ProgramConfig.maps).
 *
 * The map of each class is laid over the image as the network saw it, one image beside the other. A map is enlarged
 * bilinearly between the centers of its places (PyTorch's interpolate without align_corners), scaled so that its smallest
 * value is 0 and its largest 1, colored from blue over cyan, yellow and red (MATLAB's jet), and averaged with the image:
 * each channel is (image + color) / 2. Colors show where, not how much: two images have scales of their own. */
#pragma once

#include "towers/files/files.h"
#include "towers/replica/inference.h"

enum { CLASS_MAPS_MAX = 8 }; /* in one file: side by side they are no wider than a PNG may be */

typedef struct ClassMaps {
    const ProgramConfig *program; /* of the network */
    const Inferred *found;
    int32_t image; /* of the batch */
    int64_t classes[CLASS_MAPS_MAX];
    int count;
} ClassMaps;

/* Write FOLDER/NUMBER-NAME.png: the number of the sample, so that no two images share a file, and the name of its file,
 * `where`, without folder and ending. Names of a data set may be anything: characters other than A to Z, a to z, 0 to 9,
 * '.', '-' and '_' become '_'. `path` receives it. Replaces an existing file, but no link. Errors: ERR_IO, ERR_MEMORY. */
NODISCARD Status class_maps_write(const ClassMaps *maps, const char *folder, const char *where, char path[PATH_BYTES]);
