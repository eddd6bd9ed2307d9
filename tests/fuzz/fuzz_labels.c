/* libFuzzer target of labels files, with arbitrary bytes. Every label of an accepted file is a class, increasing within
 * a row; no name leaves the folder; a file matches itself and keeps its labels. */

#include "towers/data/classes/label_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rows_check(const LabelFile *file, int classes)
{
    for (int64_t i = 0; i < file->rows_count; i++) {
        const LabelRow *row = &file->rows[i];
        if (row->first < 0 || row->count < 0 || row->first > file->labels_count - row->count || !*row->name) abort();
        if (*row->name == '/' || !strncmp(row->name, "../", 3) || strstr(row->name, "/../")) abort();
        for (int32_t k = 0; k < row->count; k++) {
            int32_t label = file->labels[row->first + k];
            if (label < 0 || label >= classes || (k && label <= file->labels[row->first + k - 1])) abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LabelFile file, again;
    if (label_file_parse("fuzz", (const char *)data, size, &file) != OK) return 0;
    rows_check(&file, file.classes_count);
    if (!file.classes_count || !file.rows_count) abort();
    if (label_file_parse("again", (const char *)data, size, &again) != OK) abort();
    if (label_file_match(&again, "again", &file, "fuzz") != OK) abort();
    rows_check(&again, file.classes_count);
    if (file.labels_count && memcmp(file.labels, again.labels, (size_t)file.labels_count * sizeof *file.labels) != 0)
        abort();
    label_file_free(&again);
    label_file_free(&file);
    return 0;
}
