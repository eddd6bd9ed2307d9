/* libFuzzer target of a run's records, as read by `towers report` and `towers compare`. The bytes are up to five files,
 * each after a line "=N": 0 metrics.jsonl, 1 results.csv, 2 args.yaml, 3 env.json, 4 confusion.csv. */

#include "inception/report/compare.h"
#include "inception/report/report.h"
#include "tests/fuzz/fuzz_folder.h"

enum { FILES = 5 };
static const char *const names[FILES] = {"metrics.jsonl", "results.csv", "args.yaml", "env.json", "confusion.csv"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void file_write(int number, const uint8_t *from, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, names[number]);
    FILE *to = fopen(path, "w");
    if (!to || fwrite(from, 1, count, to) != count || fclose(to) != 0) abort();
}

static void files_write(const uint8_t *data, size_t size)
{
    char path[128];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    for (const uint8_t *at = data, *end = data + size; end - at > 3;) {
        if (at[0] != '=' || at[1] < '0' || at[1] >= '0' + FILES || at[2] != '\n') return;
        const uint8_t *next = at + 3;
        while (next < end && !(*next == '=' && next[-1] == '\n')) next++;
        file_write(at[1] - '0', at + 3, (size_t)(next - at - 3));
        at = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *runs[] = {folder, folder};
    char *text = NULL, page[PATH_BYTES];
    size_t bytes = 0;
    folder_make();
    files_write(data, size);
    FILE *to = open_memstream(&text, &bytes);
    if (!to) abort();
    if (path_join(page, folder, "compare.html") == OK && report_write(folder) == OK &&
        compare_runs(runs, 1, true, NULL, to) == OK)
        (void)!compare_runs(runs, 2, false, page, to);
    fclose(to);
    free(text);
    return 0;
}
