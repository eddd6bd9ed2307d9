/* Rows of a large metrics.jsonl; see thinning.h. */
#include "towers/record/thinning.h"

enum { ENDING_ROWS = 200, UNUSUAL_ROWS = 1000 };

static bool row_is_unusual(const char *line)
{
    const char *finite = strstr(line, "\"finite\":["), *no = finite ? strstr(finite, "false") : NULL;
    return (no && no < finite + strcspn(finite, "]")) || strstr(line, "\"skipped\":true") ||
           strstr(line, "\"grad_norm\":null");
}

/* The number of a row among those of its phase. */
static int64_t row_of_phase(Thinning *thin, const char *line)
{
    static const char key[] = "\"phase\":\"";
    char name[16] = "";
    const char *at = strstr(line, key), *comma = strchr(line, ',');
    if (at && at == comma + 1)
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + sizeof key - 1, "\""), at + sizeof key - 1);
    int k = 0;
    while (k < RUN_PHASES - 1 && *thin->phase[k].name && strcmp(thin->phase[k].name, name) != 0) k++;
    snprintf(thin->phase[k].name, sizeof thin->phase[k].name, "%s", name);
    return thin->phase[k].rows++;
}

bool row_is_kept(Thinning *thin, const RunLines *lines, int64_t limit)
{
    if (lines->number == 1) {
        uint64_t ending = ENDING_ROWS * lines->at;
        thin->stride = limit ? 1 + (int64_t)(lines->bytes / (uint64_t)limit) : 1;
        thin->whole = lines->bytes > ending ? lines->bytes - ending : 0;
    }
    if (thin->stride == 1 || row_of_phase(thin, lines->line) % thin->stride == 0 || lines->at > thin->whole)
        return true;
    return row_is_unusual(lines->line) && thin->unusual++ < UNUSUAL_ROWS;
}
