/* Similar names by Damerau-Levenshtein distance; see near_name.h. */
#include "inception/models/near_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64 };

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* What is typed in another case or with another dash is the same name. */
static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Dynamic programming over three rows: before[j] and above[j] belong to the two previous characters of a. */
int edit_distance(const char *a, const char *b, int limit)
{
    int la = (int)strnlen(a, NAME_MAX_BYTES), lb = (int)strnlen(b, NAME_MAX_BYTES);
    int rows[3][NAME_MAX_BYTES + 1];
    if (la >= NAME_MAX_BYTES || lb >= NAME_MAX_BYTES || abs(la - lb) > limit) return limit + 1;
    for (int j = 0; j <= lb; j++) rows[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            row[j] =
                least_of(above[j - 1] + (folded(a[i - 1]) != folded(b[j - 1])), least_of(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
    }
    return least_of(rows[la % 3][lb], limit + 1);
}

const char *nearest_name(const char *typed, const char *const *names, int count)
{
    int limit = strlen(typed) >= 4 ? 2 : 1, best = limit + 1;
    const char *nearest = NULL;
    for (int k = 0; k < count; k++) {
        int distance = edit_distance(typed, names[k], limit);
        bool begins = strlen(typed) >= 2 && !strncmp(typed, names[k], strlen(typed));
        if (begins && distance > 1) distance = 1;
        if (distance < best) {
            best = distance;
            nearest = names[k];
        }
    }
    return nearest;
}
