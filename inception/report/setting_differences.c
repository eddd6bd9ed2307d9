/* Comparing the settings of runs. */
#include "inception/report/compare.h"

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

Status setting_differences(const Run *const *runs, int count, json_t **made)
{
    char text[VALUE_ROOM];
    json_t *all = json_object();
    if (!all) return FAIL(ERR_MEMORY, "no memory for the settings of %d runs", count);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *key = option_info(id)->flag;
        if (!is_compared(id) || !differs(runs, count, key)) continue;
        json_t *row = json_array();
        for (int i = 0; i < count; i++)
            json_array_append_new(row, value_of(runs[i], key, text) ? json_text(text) : json_null());
        json_object_set_new(all, key, row);
    }
    *made = all;
    return OK;
}

const char *setting_text(const json_t *row, int run)
{
    const char *value = json_string_value(json_array_get(row, (size_t)run));
    return value ? value : "-";
}

/* Of the column of a run: the widest of its name and its values, but for values that are too wide for a column. */
static int width_of(const Run *run, int i, json_t *settings)
{
    const char *key;
    json_t *row;
    int name = text_columns(run->name), width = name < 8 ? 8 : name > COLUMN_MOST ? COLUMN_MOST : name;
    json_object_foreach(settings, key, row)
    {
        int value = text_columns(setting_text(row, i));
        if (value > width && value <= COLUMN_MOST) width = value;
    }
    return width;
}

void setting_differences_print(const Run *const *runs, int count, json_t *settings, FILE *to)
{
    const char *key;
    json_t *row;
    if (!json_object_size(settings)) return;
    text_printf(to, "\nSettings that differ\n\n  %-22s", "");
    for (int i = 0; i < count; i++) {
        int width = width_of(runs[i], i, settings);
        text_printf(to, "  %*.*s", width, width, runs[i]->name);
    }
    json_object_foreach(settings, key, row)
    {
        bool fit = true; /* if a value has no room in its column, all have lines of their own */
        for (int i = 0; i < count; i++) fit &= text_columns(setting_text(row, i)) <= COLUMN_MOST;
        text_printf(to, "\n  %-22s", key);
        for (int i = 0; i < count; i++)
            if (fit)
                text_printf(to, "  %*s", width_of(runs[i], i, settings), setting_text(row, i));
            else
                text_printf(to, "\n    %s  %s", runs[i]->name, setting_text(row, i));
    }
    fputc('\n', to);
}
