/* Svg: small plots as text, to stand inside a page. A plot is opened with its frame (size, axes), gets lines, bands,
 * points and marks in data coordinates, and is closed; a heat map is one call. Colours are the classes and variables of
 * svg_style, which follow the reader's choice of light or dark. Lines with more points than the picture can show become
 * the least and the greatest of each column of it, so no spike is lost; values that are not finite are gaps. Names of
 * lines stand at their ends, moved apart. Text is escaped. Nothing here can fail but the stream. */
#ifndef TOWERS_INCEPTION_REPORT_SVG_H
#define TOWERS_INCEPTION_REPORT_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SVG_TINTS = 6, SVG_LABELS = 16, SVG_LABEL_BYTES = 48 };

typedef struct SvgFrame {
    const char *title;    /* read aloud, not drawn */
    const char *x_label;  /* under the axis */
    double width, height; /* of the picture */
    double x_low, x_high, y_low, y_high;
    bool y_log;
    bool bare;                     /* no names at the ends of lines: the room goes to the data */
    const char *const *categories; /* names of x = 0, 1, ... in place of numbers; NULL */
    int category_count;
} SvgFrame;

typedef struct SvgPlot {
    FILE *to; /* borrowed */
    SvgFrame frame;
    double left, right, top, bottom; /* of the area for data */
    struct {
        double y;
        int tint;
        char text[SVG_LABEL_BYTES];
    } label[SVG_LABELS];
    int labels;
} SvgPlot;

/* The style sheet that all plots share, without <style>. */
void svg_style(FILE *to);
void svg_text(FILE *to, const char *text); /* escaped for HTML and SVG */

void svg_open(SvgPlot *plot, FILE *to, const SvgFrame *frame);
/* `name` is drawn at the end of the line; NULL: none. `tint`: 0 .. SVG_TINTS - 1. */
void svg_line(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint, double width, const char *name);
void svg_dots(SvgPlot *plot, const double *x, const double *y, int64_t count, int tint);
void svg_band(SvgPlot *plot, const double *x, const double *low, const double *high, int64_t count, int tint,
              const char *name);
void svg_bar(SvgPlot *plot, double x, double y, double width, int tint); /* from the bottom up to y; width in x */
void svg_whisker(SvgPlot *plot, double x, double y, double low, double high, int tint);
void svg_level(SvgPlot *plot, double y, const char *name); /* dashed, across */
void svg_mark(SvgPlot *plot, double x);                    /* a warning, from top to bottom */
void svg_close(SvgPlot *plot);

typedef struct SvgHeat {
    const char *title;
    int rows, columns;
    const double *share;                                /* [rows][columns], 0 (empty) to 1 (full); NaN: nothing */
    const int64_t *number;                              /* [rows][columns] drawn into the cells; NULL */
    const char *const *row_names, *const *column_names; /* NULL: none */
    const char *x_label, *y_label;
    double width, row_height, left;
    int tint;
} SvgHeat;
void svg_heat(FILE *to, const SvgHeat *heat);

/* Widen [*low, *high] to include the finite of `values`; start with INFINITY, -INFINITY. */
void svg_extent(const double *values, int64_t count, double *low, double *high);
/* Round the ends outward to whole ticks, and give an empty range a width. Returns the distance of ticks. */
double svg_nice(double *low, double *high);

#endif
