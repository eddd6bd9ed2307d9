/* MANIFEST: sizes and checksums of a checkpoint's files. A text file:
 *
 *   towers-checkpoint 1
 *   step 12000
 *   file 108903424 <XXH3-128, 32 hexadecimal digits> model.safetensors
 *   tensor <CRC32C, 8 digits> Conv2d_1a_3x3.conv.weight
 *   hash <XXH3-128 of all bytes before this line>
 *
 * A tensor line belongs to the file line above it and serves only to name the damaged tensor. The file has exactly these
 * lines, with one space between fields and a newline after each. The parser treats its input as untrusted. MANIFEST is
 * written last, so a directory that has one also has all the files that it lists. */
#pragma once

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

/* Write and fsync a new file in DIRECTORY, and list it. The hash is taken of the data in memory, so a bit that changes
 * on the way to the disk is detected. Names of tensors must live as long as the manifest. Errors: ERR_IO. */
NODISCARD Status manifest_write_tensors(Manifest *manifest, const char *directory, const char *name,
                                        const StTensor *tensors, int count, const StPair *metadata, int pairs);
NODISCARD Status manifest_write_text(Manifest *manifest, const char *directory, const char *name, const char *text);
/* Write DIRECTORY/MANIFEST, and fsync the directory. */
NODISCARD Status manifest_finish(const Manifest *manifest, const char *directory);

/* List an existing file and the CRCs of its tensors. The names must live as long as the manifest. */
NODISCARD Status manifest_add(Manifest *manifest, const char *name, const FileSum *sum, const StTensor *tensors,
                              int count);
NODISCARD Status manifest_format(const Manifest *manifest, char **text,
                                 size_t *count);                               /* *text is owned by the caller */
const ManifestFile *manifest_find(const Manifest *manifest, const char *name); /* NULL if it is not listed */

/* Read DIRECTORY/MANIFEST, or check every listed file against it (reads them fully). Errors: ERR_CHECKPOINT naming
 * file, tensor and offset if anything is missing, damaged or malformed; ERR_IO or ERR_MEMORY if it could not be
 * read. */
NODISCARD Status manifest_open(const char *directory, Manifest **made);
NODISCARD Status manifest_verify(const Manifest *manifest, const char *directory);
