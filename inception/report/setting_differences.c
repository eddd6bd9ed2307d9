/* Comparing the settings of runs. */
#include "inception/report/setting_differences.h"

#include "kernels/text.h"
#include "towers/files/json.h"

enum { VALUE_ROOM = 256, COLUMN_MOST = 40 };

static const char *value_of(const Run *run, const char *key, char text[VALUE_ROOM])
{
    return run_argument(run, key, text, VALUE_ROOM) ? text : NULL;
}

static bool differs(const Run *const *runs, int count, const char *key)
{
    char first_text[VALUE_ROOM], text[VALUE_ROOM];
    const char *first = value_of(runs[0], key, first_text);
    for (int i = 1; i < count; i++) {
        const char *value = value_of(runs[i], key, text);
        if (!value != !first || (value && strcmp(value, first) != 0)) return true;
    }
    return false;
}

/* A setting of training, not of where and how loudly a run ran. */
static bool is_compared(OptionId id)
{
    return option_belongs(id, VERB_TRAIN) && !option_is_of_the_call(id);
}

bool settings_equal(const Run *a, const Run *b, OptionId but)
{
    const Run *both[] = {a, b};
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (id != but && is_compared(id) && differs(both, 2, option_info(id)->flag)) return false;
    return true;
}

static json_t *row_json(const Run *const *runs, int count, const char *key)
{
    char text[VALUE_ROOM];
    json_t *row = json_array();
    for (int i = 0; i < count; i++) {
        const char *value = value_of(runs[i], key, text);
        json_array_append_new(row, value ? json_text(value) : json_null());
    }
    return row;
}

/* If a value has no room in its column, all have lines of their own. */
static void row_print(const Run *const *runs, int count, const char *key, const int *width, FILE *to)
{
    char text[VALUE_ROOM];
    bool fit = true;
    for (int i = 0; i < count; i++) {
        const char *value = value_of(runs[i], key, text);
        fit &= !value || text_columns(value) <= width[i];
    }
    text_printf(to, "  %-22s", key);
    for (int i = 0; i < count; i++) {
        const char *value = value_of(runs[i], key, text), *shown = value ? value : "-";
        if (fit)
            text_printf(to, "  %*s", width[i], shown);
        else
            text_printf(to, "\n    %s  %s", runs[i]->name, shown);
    }
    fputc('\n', to);
}

static void widths_fit(const Run *const *runs, int count, const char *key, int *width)
{
    char text[VALUE_ROOM];
    for (int i = 0; i < count; i++) {
        const char *value = value_of(runs[i], key, text);
        int length = value ? text_columns(value) : 0;
        if (length > width[i] && length <= COLUMN_MOST) width[i] = length;
    }
}

static void head_print(const Run *const *runs, int count, int *width, FILE *to)
{
    text_printf(to, "\nSettings that differ\n\n  %-22s", "");
    for (int i = 0; i < count; i++) {
        int length = text_columns(runs[i]->name);
        width[i] = length < 8 ? 8 : length > COLUMN_MOST ? COLUMN_MOST : length;
    }
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (is_compared(id) && differs(runs, count, option_info(id)->flag))
            widths_fit(runs, count, option_info(id)->flag, width);
    for (int i = 0; i < count; i++) text_printf(to, "  %*.*s", width[i], width[i], runs[i]->name);
    fputc('\n', to);
}

Status setting_differences(const Run *const *runs, int count, json_t *root, FILE *to)
{
    json_t *all = root ? json_object() : NULL;
    int *width = calloc((size_t)count, sizeof *width);
    bool any = false;
    if (!width || (root && !all)) {
        free(width);
        json_decref(all);
        return FAIL(ERR_MEMORY, "no memory for the settings of %d runs", count);
    }
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *key = option_info(id)->flag;
        if (!is_compared(id) || !differs(runs, count, key)) continue;
        if (root) {
            json_object_set_new(all, key, row_json(runs, count, key));
            continue;
        }
        if (!any) head_print(runs, count, width, to);
        any = true;
        row_print(runs, count, key, width, to);
    }
    free(width);
    if (root) json_object_set_new(root, "settings", all);
    return OK;
}
