/* libFuzzer target of the table of published weights, with arbitrary bytes. Every row of an accepted table must be found again, and
 * its file must be a name without a folder. */

#include "inception/models/published.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Published *table;
    if (published_parse((const char *)data, size, "fuzz", &table) != OK) return 0;
    for (int i = 0; published_at(table, i); i++) {
        const PublishedRow *row = published_at(table, i);
        if (!published_find(table, row->model, row->name) || !published_file(table, row->file)) abort();
        if (strchr(row->file, '/') || row->file[0] == '.' || !*row->file || strlen(row->sha256) < 8) abort();
    }
    published_close(table);
    return 0;
}
