/* Svg: small plots as text, to be embedded in a page. Open a plot with its frame (height, axes), add lines, bands, points
 * and marks in data coordinates, and close it; a heat map is a single call. A plot is as wide as its place in the page, a
 * telephone's too, without larger or smaller text; where names at the ends of lines have no room, a legend stands below
 * (report.css). Colors are classes and variables of report.css, which follow the reader's preference for light or dark. A
 * line with more points than pixels is drawn as the minimum and maximum of each pixel column, so that no spike is lost;
 * values that are not finite leave gaps. Lines are labeled at their ends, and labels are moved apart.
 *
 * The values of lines and bands are in the plot as numbers, too, for a pointer to read (readings.js): of a long curve those by
 * which it is drawn. Text is escaped. Only the stream can fail. */
#pragma once

#include "kernels/base/text.h"

enum { SVG_TINTS = 9, SVG_LABELS = 16, SVG_LABEL_BYTES = 48, SVG_DIGITS = 6 /* of a value */ };

typedef struct SvgFrame {
    const char *title;   /* for screen readers, not drawn */
    const char *x_label; /* under the axis */
    double height;       /* of the plot, in pixels */
    double x_low, x_high, y_low, y_high;
    bool x_whole;                  /* values of x are whole numbers: epochs, steps, images */
    bool x_log, y_log;             /* if all are above 0 */
    bool bare;                     /* no labels at the ends of lines; the data get their space */
    const char *const *categories; /* labels for x = 0, 1, ... instead of numbers; NULL: numbers */
    int category_count;
} SvgFrame;

typedef struct SvgPlot {
    FILE *to; /* borrowed */
    SvgFrame frame;
    double height; /* of the area for data */
    struct {
        double y;
        int tint;
        char text[SVG_LABEL_BYTES];
    } label[SVG_LABELS];
    int labels;
    FILE *values; /* owned until svg_close, as are the next two: values for a pointer; NULL: none */
    char *value_text;
    size_t value_bytes;
    int64_t picked, *pick, picks; /* of curves with `picked` values these [picks] are listed */
} SvgPlot;

void svg_text(FILE *to, const char *text); /* escaped for HTML and SVG */
/* text_printf, but the text of each %s is escaped for HTML and SVG. */
void svg_printf(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

void svg_open(SvgPlot *plot, FILE *to, const SvgFrame *frame);
/* `tint`: any number; from SVG_TINTS on the colors begin again, the lines dashed. */
void svg_curve(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint, double width,
               const char *name);
/* A curve with its name at its end. */
void svg_line(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint, double width, const char *name);
/* A thin, pale curve: single values behind their average. */
void svg_raw(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint, const char *name);
void svg_dots(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint);
void svg_band(SvgPlot *plot, const double *x, const double *low, const double *high, int64_t count, int tint,
              const char *name);
void svg_bar(SvgPlot *plot, double x, double y, double width, int tint); /* from the bottom to y; width in data units */
void svg_whisker(SvgPlot *plot, double x, double y, double low, double high, int tint);
/* Values for a pointer without a drawing: those of dots, bars and whiskers. `high`: `low` is the lower end of a range; NULL: no
 * range. */
void svg_values(SvgPlot *plot, const double *x, const double *low, const double *high, int64_t count, int tint,
                const char *name);
/* A dashed line, from `left` to `right`, which is a level if both are equal; `name`: at its end, NULL: none. */
void svg_straight(SvgPlot *plot, double left, double right, const char *name);
void svg_mark(SvgPlot *plot, double x); /* a vertical warning line */
void svg_close(SvgPlot *plot);
void svg_sample(FILE *to, int tint); /* of a line, for a legend outside the plot */

typedef struct SvgHeat {
    const char *title;
    int rows, columns;
    const double *share;                                /* [rows][columns], 0 (empty) to 1 (full); NaN: no cell */
    const int64_t *number;                              /* [rows][columns], drawn into the cells; NULL: none */
    const char *const *row_names, *const *column_names; /* NULL: none */
    const char *x_label, *y_label;
    double width, row_height, left;
    int tint;
} SvgHeat;
void svg_heat(FILE *to, const SvgHeat *heat);

/* Widen [*low, *high] to include the finite values; start with INFINITY, -INFINITY. */
void svg_extent(const double *values, int64_t count, double *low, double *high);
/* Round the ends outward to multiples of the tick distance, which is returned; widens an empty range. */
double svg_nice(double *low, double *high);
