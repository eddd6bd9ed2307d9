/* MANIFEST: what a checkpoint's files must be, byte for byte. A text file:
 *
 *   towers-checkpoint 1
 *   step 12000
 *   file 108903424 <XXH3-128, 32 hexadecimal digits> model.safetensors
 *   tensor <CRC32C, 8 digits> Conv2d_1a_3x3.conv.weight
 *   hash <XXH3-128 of all bytes before this line>
 *
 * A tensor is one of the file above it; its line only tells which tensor a damaged file has lost.
 * Exactly these lines, one space between fields, each ended by a newline. Parsing trusts nothing. A directory is written
 * file by file, MANIFEST last: who finds it finds all that it lists. */
#ifndef TOWERS_STORE_MANIFEST_H
#define TOWERS_STORE_MANIFEST_H

#include "towers/files/files.h"
#include "towers/store/safetensors.h"

enum { MANIFEST_VERSION = 1, MANIFEST_FILES = 8, MANIFEST_NAME = 64, MANIFEST_LIMIT = 64 << 20 };

typedef struct ManifestTensor {
    uint32_t crc;
    const char *name;
} ManifestTensor;

typedef struct ManifestFile {
    char name[MANIFEST_NAME];
    FileSum sum;
    int first, tensors; /* in Manifest.tensor */
} ManifestFile;

typedef struct Manifest {
    int64_t step;
    ManifestFile file[MANIFEST_FILES];
    int files, tensors;
    ManifestTensor *tensor; /* owned; names borrowed from `text` or from the caller of manifest_add */
    char *text;             /* owned, or NULL */
} Manifest;

NODISCARD Status manifest_create(int64_t step, Manifest **made);
/* Errors: ERR_CHECKPOINT; ERR_NEWER for a version above MANIFEST_VERSION. */
NODISCARD Status manifest_parse(const char *text, size_t count, const char *label, Manifest **made);
void manifest_destroy(Manifest *manifest);

/* Write a new file of DIRECTORY, fsynced, and list it. Its sum is that of the memory, so a disk that changes a bit is found
 * out. Names of tensors must live as long as the manifest. Errors: ERR_IO. */
NODISCARD Status manifest_write_tensors(Manifest *manifest, const char *directory, const char *name,
                                        const StTensor *tensors, int count, const StPair *metadata, int pairs);
NODISCARD Status manifest_write_text(Manifest *manifest, const char *directory, const char *name, const char *text);
/* Write DIRECTORY/MANIFEST, and fsync the directory. */
NODISCARD Status manifest_finish(const Manifest *manifest, const char *directory);

/* Add a file that is there already, and the CRCs of its tensors. The names must live as long as the manifest. */
NODISCARD Status manifest_add(Manifest *manifest, const char *name, const FileSum *sum, const StTensor *tensors,
                              int count);
NODISCARD Status manifest_format(const Manifest *manifest, char **text, size_t *count); /* *text is the caller's */
const ManifestFile *manifest_find(const Manifest *manifest, const char *name);          /* NULL if it is not listed */

/* Read DIRECTORY/MANIFEST, or check every listed file against it (a full read). Errors: ERR_CHECKPOINT naming file,
 * tensor and offset, for what is missing, damaged or of another structure; others when it could not be read. */
NODISCARD Status manifest_open(const char *directory, Manifest **made);
NODISCARD Status manifest_verify(const Manifest *manifest, const char *directory);

#endif
