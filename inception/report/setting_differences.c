/* Comparing the settings of runs. */
#include "inception/report/compare.h"

#include "towers/files/json.h"

enum { VALUE_ROOM = 256, COLUMN_MOST = 40 };

/* The value of an option that nobody has set; NULL: none. */
static const char *default_of(OptionId id, char text[OPTION_FORMAT_BYTES])
{
    const char *value = option_format(&option_defaults, id, text, OPTION_FORMAT_BYTES);
    return *value ? value : NULL;
}

/* A real number has a point in args.yaml where it has none elsewhere. */
static bool same_value(OptionId id, const char *a, const char *b)
{
    if (!a || !b) return !a && !b;
    return !strcmp(a, b) || (option_info(id)->type == OPTION_IS_REAL && strtod(a, NULL) == strtod(b, NULL));
}

static const char *value_of(const Run *run, const char *key, char text[VALUE_ROOM])
{
    return run_argument(run, key, text, VALUE_ROOM) ? text : NULL;
}

/* A run of an older version lacks options that came later: it has their defaults. */
static bool differs(const Run *const *runs, int count, OptionId id)
{
    char usual[OPTION_FORMAT_BYTES], first_text[VALUE_ROOM], text[VALUE_ROOM];
    const char *key = option_info(id)->flag, *standard = default_of(id, usual),
               *first = value_of(runs[0], key, first_text);
    for (int i = 1; i < count; i++) {
        const char *value = value_of(runs[i], key, text);
        if (!same_value(id, value ? value : standard, first ? first : standard)) return true;
    }
    return false;
}

/* A setting of training, not of where and how loudly a run ran. */
static bool is_compared(OptionId id)
{
    return option_belongs(id, VERB_TRAIN) && !option_is_of_the_call(id);
}

bool setting_is_changed(const SettingLine *setting)
{
    bool negated;
    char usual[OPTION_FORMAT_BYTES];
    OptionId id = option_find(setting->key, &negated);
    if (id == OPTION_ID_COUNT) return strcmp(setting->origin, "default") != 0; /* of another version: what it says */
    return is_compared(id) && !same_value(id, setting->value, default_of(id, usual));
}

bool settings_equal(const Run *a, const Run *b, OptionId but)
{
    const Run *both[] = {a, b};
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (id != but && is_compared(id) && differs(both, 2, id)) return false;
    return true;
}

Status setting_differences(const Run *const *runs, int count, json_t **made)
{
    char text[VALUE_ROOM];
    json_t *all = json_object();
    if (!all) return FAIL(ERR_MEMORY, "no memory for the settings of %d runs", count);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *key = option_info(id)->flag;
        if (!is_compared(id) || !differs(runs, count, id)) continue;
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
