/* A line of a run's args.yaml, as options_print_config writes it: `key: value   # from ORIGIN`. A text is quoted, with
 * `\"`, `\\`, `\uXXXX` and `\UXXXXXXXX` for what is not printable ASCII (YAML 1.1, section 5.6). */
#pragma once

#include "towers/files/files.h"

typedef struct SettingLine {
    char key[64];
    char value[PATH_BYTES];  /* without quotes and escapes, in UTF-8; cut at a whole character */
    char origin[PATH_BYTES]; /* such as "default" or "command line"; "" if the line does not say */
} SettingLine;

/* `line` ends at a newline or NUL. False for a comment and for a line without key or value. */
bool setting_line_read(const char *line, SettingLine *setting);
/* ERR_FORMAT if `text`, of the file `path`, ends before the last settings: what is cut off would mean defaults. */
NODISCARD Status settings_whole(const char *path, const char *text);
