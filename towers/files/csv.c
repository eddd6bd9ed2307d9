/* Quoting and reading fields of CSV. */
#include "towers/files/csv.h"

#include <string.h>

void csv_text(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"') fputc('"', to);
        if ((unsigned char)*text < ' ')
            fprintf(to, "\\x%02x", (unsigned)*text);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}

char *csv_take(char **row)
{
    char *field = *row, *from = field, *to = field;
    bool quoted = field && *field == '"';
    if (!field) return NULL;
    if (quoted) {
        for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
            from += *from == '"';
            *to++ = *from;
        }
        from += *from == '"';
        from += strcspn(from, ",");
    } else {
        from = to = field + strcspn(field, ",");
    }
    *row = *from == ',' ? from + 1 : NULL;
    *to = 0;
    return field;
}
