/* Write plots; see svg.h. Input is in data coordinates. The width of a plot is the page's: text, dots and bars stand at per
 * cents of it; lines and areas are drawn in SCALE units, which the page stretches without their strokes. Heights are
 * pixels. */
#include "inception/report/page/svg.h"

#include <float.h>

enum {
    TOP = 10,
    BOTTOM = 38 /* margins of report.css, within the height of the frame */,
    LINE_HEIGHT = 15,
    SCALE = 1000
};
enum { COLUMNS_MAX = 700, TICKS = 5, TICKS_MOST = 40, VALUE_COLUMNS = 300 };

/* Limits that keep axes well within the range of a double, and the smallest relative distance of their ends. */
static const double LOG_LEAST = 1e-290, LOG_MOST = 1e290, LINEAR_MOST = 1e290, DISTINCT = 1e-12;

void svg_text(FILE *to, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        switch (*at) {
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '&': fputs("&amp;", to); break;
        case '"': fputs("&quot;", to); break;
        default:
            if (*at >= 0x20 || *at == '\n' || *at == '\t') fputc(*at, to);
        }
    }
}

void svg_printf(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vput(to, svg_text, format, args);
    va_end(args);
}

/* ---- axes */

void svg_extent(const double *values, int64_t count, double *low, double *high)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        if (values[i] < *low) *low = values[i];
        if (values[i] > *high) *high = values[i];
    }
}

double svg_nice(double *low, double *high)
{
    if (!(*low <= *high)) *low = 0, *high = 1;
    *low = fmin(fmax(*low, -LINEAR_MOST), LINEAR_MOST);
    *high = fmin(fmax(*high, -LINEAR_MOST), LINEAR_MOST);
    if (*high - *low <=
        fmax(fmax(fabs(*low), fabs(*high)) * DISTINCT, LOG_LEAST)) { /* empty, or too narrow for a double */
        double room = fabs(*low) < LOG_LEAST ? 1 : fabs(*low) / 2;
        *low = fabs(*low) < LOG_LEAST ? 0 : *low - room;
        *high += room;
    }
    double rough = (*high - *low) / TICKS, power = pow(10, floor(log10(rough)));
    double tick = power * (rough > 5 * power ? 10 : rough > 2 * power ? 5 : rough > power ? 2 : 1);
    *low = floor(*low / tick + 1e-9) * tick;
    *high = ceil(*high / tick - 1e-9) * tick;
    return tick;
}

/* From 0 at the left end of the area for data to 1 at its right end. */
static double share_of(double value, double low, double high, bool logarithmic)
{
    double share = logarithmic ? (log10(fmax(value, DBL_MIN)) - log10(low)) / (log10(high) - log10(low))
                               : (value - low) / (high - low);
    return fmin(fmax(share, 0), 1);
}

static double share_x(const SvgPlot *p, double x)
{
    return share_of(x, p->frame.x_low, p->frame.x_high, p->frame.x_log);
}

static double place_y(const SvgPlot *p, double y)
{
    return p->height * (1 - share_of(y, p->frame.y_low, p->frame.y_high, p->frame.y_log));
}

/* "12k" for 12000; "0" for rounding errors around zero. */
static void tick_text(double value, double tick, char text[32])
{
    if (fabs(value) < tick * 1e-6) value = 0;
    if (fabs(value) >= 1e6)
        snprintf(text, 32, "%gM", value / 1e6);
    else if (fabs(value) >= 1e4)
        snprintf(text, 32, "%gk", value / 1e3);
    else
        snprintf(text, 32, "%.6g", value);
}

static void y_tick(const SvgPlot *p, double value, double tick)
{
    char text[32];
    double y = place_y(p, value);
    tick_text(value, tick, text);
    fprintf(p->to,
            "<line class=\"rule\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"end\" x=\"-8\" "
            "y=\"%.1f\">%s</text>",
            y, y, y + 4, text);
}

static void x_word(const SvgPlot *p, double value, const char *text)
{
    svg_printf(p->to, "<text class=\"mid\" x=\"%.3f%%\" y=\"%.1f\">%s</text>", 100 * share_x(p, value), p->height + 17,
               text);
}

static void x_tick(const SvgPlot *p, double value, double tick)
{
    char text[32];
    tick_text(value, tick, text);
    x_word(p, value, text);
}

/* The nearest 1, 2 or 5 times a power of ten at or below (`up`: at or above) the value. */
static double round_log(double value, bool up)
{
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(value) + 1e-9)), found = up ? 10 : 1;
    for (int i = 0; i < 4; i++) {
        if (!up && steps[i] * power <= value * (1 + 1e-9)) found = steps[i];
        if (up && steps[3 - i] * power >= value * (1 - 1e-9)) found = steps[3 - i];
    }
    return found * power;
}

typedef void PutTick(const SvgPlot *p, double value, double tick);

/* Ends are limited so that powers of ten do not overflow a double, and moved outward to a tick. 2 and 5 have ticks where the axis has
 * fewer decades than `fine`. */
static void axis_log(const SvgPlot *p, double *low, double *high, double fine, PutTick *put)
{
    static const double steps[] = {1, 2, 5};
    *low = round_log(fmin(fmax(*low, LOG_LEAST), LOG_MOST), false);
    *high = round_log(fmin(fmax(*high, LOG_LEAST), LOG_MOST), true);
    if (*low >= *high) *high = 10 * *low;
    double decades = log10(*high) - log10(*low); /* the quotient could overflow */
    int first = (int)floor(log10(*low)), last = (int)ceil(log10(*high)), every = 1 + (int)decades / 7;
    for (int exponent = first; exponent <= last; exponent += every) {
        double power = pow(10, exponent);
        for (int i = 0; i < (decades < fine ? 3 : 1); i++)
            if (steps[i] * power >= *low * 0.999 && steps[i] * power <= *high * 1.001) put(p, steps[i] * power, 0);
    }
}

/* Ticks are counted rather than added up: a tick may be too small to change a large number. */
static int tick_count(double low, double high, double tick)
{
    double count = floor((high - low) / tick + 0.5);
    return count >= 0 && count <= TICKS_MOST ? (int)count : 0;
}

static void y_axis(SvgPlot *p)
{
    SvgFrame *f = &p->frame;
    f->y_log = f->y_log && f->y_low > 0 && f->y_high > 0;
    if (f->y_log) {
        axis_log(p, &f->y_low, &f->y_high, 2.5, y_tick);
        return;
    }
    double tick = svg_nice(&f->y_low, &f->y_high);
    int count = tick_count(f->y_low, f->y_high, tick);
    for (int i = 0; i <= count; i++) y_tick(p, f->y_low + i * tick, tick);
}

/* The ends are those of the data, unless these are one point: whole numbers then have the one before it beside them. */
static void x_axis_linear(SvgPlot *p)
{
    SvgFrame *f = &p->frame;
    if (f->x_whole && !(f->x_low < f->x_high)) f->x_low = f->x_high - 1;
    double low = f->x_low, high = f->x_high, tick = svg_nice(&low, &high);
    if (!(f->x_low < f->x_high)) f->x_low = low, f->x_high = high;
    if (f->x_whole && tick < 1) {
        tick = 1;
        low = ceil(f->x_low);
    }
    int count = tick_count(low, high, tick);
    for (int i = 0; i <= count; i++) {
        double v = low + i * tick;
        if (v > f->x_high + tick * 1e-6) break;
        if (v >= f->x_low - tick * 1e-6) x_tick(p, v, tick);
    }
}

static void x_axis(SvgPlot *p)
{
    SvgFrame *f = &p->frame;
    fprintf(p->to, "<line class=\"axis\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", p->height, p->height);
    f->x_log = f->x_log && !f->categories && f->x_low > 0 && f->x_high > 0;
    if (f->categories) {
        f->x_low = -0.6;
        f->x_high = f->category_count - 0.4;
        for (int i = 0; i < f->category_count; i++) x_word(p, i, f->categories[i]);
    } else if (f->x_log) {
        axis_log(p, &f->x_low, &f->x_high, 1.5, x_tick); /* side by side: on a telephone 0.0001 would touch 0.0002 */
    } else {
        x_axis_linear(p);
    }
    if (f->x_label)
        svg_printf(p->to, "<text class=\"mid\" x=\"50%%\" y=\"%.1f\">%s</text>", p->height + 33, f->x_label);
}

void svg_open(SvgPlot *plot, FILE *to, const SvgFrame *frame)
{
    *plot = (SvgPlot){.to = to, .frame = *frame, .height = frame->height - TOP - BOTTOM};
    svg_printf(to, "<svg class=\"chart%s\" style=\"height:%gpx\" role=\"img\" aria-label=\"%s\">",
               frame->bare ? " bare" : "", plot->height, frame->title);
    y_axis(plot);
    x_axis(plot);
}

/* ---- values, for readings.js */

/* The places of the lowest and the highest finite value of first .. end - 1, in their order; -1 if there is none. Whether some are
 * not finite. */
static bool extremes(const double *y, int64_t first, int64_t end, int64_t *before, int64_t *after)
{
    int64_t low = -1, high = -1;
    bool gap = false;
    for (int64_t i = first; i < end; i++) {
        gap |= !isfinite(y[i]);
        if (!isfinite(y[i])) continue;
        if (low < 0 || y[i] < y[low]) low = i;
        if (high < 0 || y[i] > y[high]) high = i;
    }
    *before = low < high ? low : high;
    *after = low < high ? high : low;
    return gap;
}

/* A list of numbers; "-" stands for one that is not finite. */
static void list_put(const SvgPlot *p, const char *name, int digits, const double *values, int64_t count)
{
    bool some = p->picked == count;
    fprintf(p->values, " data-%s=\"", name);
    for (int64_t i = 0; i < (some ? p->picks : count); i++) {
        double value = values[some ? p->pick[i] : i];
        if (i) fputc(' ', p->values);
        fprintf(p->values, isfinite(value) ? "%.*g" : "-", digits, value);
    }
    fputs("\"", p->values);
}

/* Of a long curve the values are listed that it is drawn by: the lowest and the highest of each column. Curves of the same
 * length have the same points, so that a pointer finds values of all of them. */
static void picks_make(SvgPlot *p, const double *y, int64_t count)
{
    if (count <= 2 * VALUE_COLUMNS || p->picked) return;
    p->pick = calloc((size_t)2 * VALUE_COLUMNS, sizeof *p->pick);
    if (!p->pick) return;
    p->picked = count;
    for (int64_t k = 0; k < VALUE_COLUMNS; k++) {
        int64_t first = count * k / VALUE_COLUMNS, before, after;
        extremes(y, first, count * (k + 1) / VALUE_COLUMNS, &before, &after);
        p->pick[p->picks++] = before < 0 ? first : before;
        if (after > before) p->pick[p->picks++] = after;
    }
}

void svg_values(SvgPlot *p, const double *x, const double *low, const double *high, int64_t count, int tint,
                const char *name)
{
    if (count < 1) return;
    if (!p->values) p->values = open_memstream(&p->value_text, &p->value_bytes);
    if (!p->values) return;
    picks_make(p, high ? high : low, count);
    svg_printf(p->values, "<g class=\"values\" data-name=\"%s\"", name);
    fprintf(p->values, " data-tint=\"%d\"", tint % SVG_TINTS);
    list_put(p, "x", 10, x, count);
    list_put(p, "y", SVG_DIGITS, low, count);
    if (high) list_put(p, "high", SVG_DIGITS, high, count);
    fputs("/>", p->values);
}

/* What readings.js needs to know about the axes, and all values. */
static void values_close(SvgPlot *p)
{
    const SvgFrame *f = &p->frame;
    if (!p->values) return;
    bool good = !ferror(p->values);
    good = fclose(p->values) == 0 && good;
    if (good && p->value_bytes) {
        svg_printf(p->to, "<g class=\"axes\" data-x=\"%.10g %.10g %d\" data-y=\"%.10g %.10g %d\" data-label=\"%s\"",
                   f->x_low, f->x_high, f->x_log, f->y_low, f->y_high, f->y_log, f->x_label ? f->x_label : "");
        if (f->categories) fputs(" data-words=\"", p->to);
        for (int i = 0; f->categories && i < f->category_count; i++)
            svg_printf(p->to, "%s%s", i ? "\n" : "", f->categories[i]);
        fputs(f->categories ? "\"/>" : "/>", p->to);
        fwrite(p->value_text, 1, p->value_bytes, p->to);
    }
    free(p->value_text);
    free(p->pick);
    p->values = NULL;
}

/* ---- data */

static void label_add(SvgPlot *p, double y, int tint, const char *name)
{
    if (p->labels == SVG_LABELS || !isfinite(y)) return;
    p->label[p->labels].y = place_y(p, y);
    p->label[p->labels].tint = tint;
    snprintf(p->label[p->labels++].text, SVG_LABEL_BYTES, "%s", name);
}

/* A part of the plot in which x goes from 0 to SCALE. */
static void stretch_begin(const SvgPlot *p)
{
    fprintf(p->to, "<svg viewBox=\"0 0 %d %g\" preserveAspectRatio=\"none\">", SCALE, p->height);
}

static void stretch_end(const SvgPlot *p)
{
    fputs("</svg>", p->to);
}

/* Append a point to the path; after a gap it starts a new line. */
static void point_put(const SvgPlot *p, double x, double y, bool *pen_down)
{
    if (!isfinite(y)) {
        *pen_down = false;
        return;
    }
    fprintf(p->to, "%c%.1f %.1f", *pen_down ? 'L' : 'M', SCALE * share_x(p, x), place_y(p, y));
    *pen_down = true;
}

/* The minimum and the maximum of points first .. end - 1, in the order in which they occur. */
static void column_put(const SvgPlot *p, const double *x, const double *y, int64_t first, int64_t end, bool *pen_down)
{
    int64_t before, after;
    if (extremes(y, first, end, &before, &after) || before < 0) *pen_down = false;
    if (before < 0) return;
    point_put(p, x[before], y[before], pen_down);
    if (after > before) point_put(p, x[after], y[after], pen_down);
}

/* Its color, and beyond the colors its dashes. */
static void line_begin(FILE *to, const char *kind, int tint, double width)
{
    static const char *const dashes[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 4\""};
    fprintf(to, "<path class=\"%s l%d\"%s stroke-width=\"%g\" d=\"", kind, tint % SVG_TINTS,
            dashes[tint / SVG_TINTS % 3], width);
}

void svg_sample(FILE *to, int tint)
{
    fputs("<svg class=\"sample\" viewBox=\"0 0 40 10\" aria-hidden=\"true\">", to);
    line_begin(to, "line", tint, 2.5);
    fputs("M2 5L38 5\"/></svg>", to);
}

static void line_draw(SvgPlot *p, const char *kind, const double *x, const double *y, int64_t count, int tint,
                      double width)
{
    bool pen_down = false;
    int64_t columns = count > 2 * COLUMNS_MAX ? COLUMNS_MAX : count;
    stretch_begin(p);
    line_begin(p->to, kind, tint, width);
    for (int64_t k = 0; k < columns; k++)
        column_put(p, x, y, count * k / columns, count * (k + 1) / columns, &pen_down);
    fputs("\"/>", p->to);
    stretch_end(p);
}

void svg_curve(SvgPlot *p, const double *x, const double *y, int64_t count, int tint, double width, const char *name)
{
    line_draw(p, "line", x, y, count, tint, width);
    svg_values(p, x, y, NULL, count, tint, name);
}

void svg_raw(SvgPlot *p, const double *x, const double *y, int64_t count, int tint, const char *name)
{
    line_draw(p, "line raw", x, y, count, tint, 1);
    svg_values(p, x, y, NULL, count, tint, name);
}

void svg_line(SvgPlot *p, const double *x, const double *y, int64_t count, int tint, double width, const char *name)
{
    double last = NAN;
    svg_curve(p, x, y, count, tint, width, name);
    for (int64_t i = 0; i < count; i++)
        if (isfinite(y[i])) last = y[i];
    label_add(p, last, tint, name);
}

void svg_dots(SvgPlot *p, const double *x, const double *y, int64_t count, int tint)
{
    for (int64_t i = 0; i < count; i++)
        if (isfinite(y[i]))
            fprintf(p->to, "<circle class=\"f%d\" r=\"3\" cx=\"%.3f%%\" cy=\"%.1f\"/>", tint % SVG_TINTS,
                    100 * share_x(p, x[i]), place_y(p, y[i]));
}

/* The edge of a band: one extreme per column; `side` > 0: the maximum of `values`. */
static void edge_put(const SvgPlot *p, const double *x, const double *values, int64_t first, int64_t end, int side,
                     bool *pen_down)
{
    int64_t found = -1;
    for (int64_t i = first; i < end; i++)
        if (isfinite(values[i]) && (found < 0 || side * values[i] > side * values[found])) found = i;
    if (found >= 0) point_put(p, x[(first + end - 1) / 2], values[found], pen_down);
}

void svg_band(SvgPlot *p, const double *x, const double *low, const double *high, int64_t count, int tint,
              const char *name)
{
    bool pen_down = false;
    int64_t columns = count > COLUMNS_MAX ? COLUMNS_MAX : count;
    stretch_begin(p);
    fprintf(p->to, "<path class=\"band f%d\" d=\"", tint % SVG_TINTS);
    for (int64_t k = 0; k < columns; k++)
        edge_put(p, x, high, count * k / columns, count * (k + 1) / columns, 1, &pen_down);
    for (int64_t k = columns - 1; k >= 0; k--)
        edge_put(p, x, low, count * k / columns, count * (k + 1) / columns, -1, &pen_down);
    fputs("Z\"/>", p->to);
    stretch_end(p);
    svg_values(p, x, low, high, count, tint, name);
    if (count) label_add(p, high[count - 1], tint, name);
}

void svg_bar(SvgPlot *p, double x, double y, double width, int tint)
{
    double left = share_x(p, x - width / 2), right = share_x(p, x + width / 2), top = place_y(p, y);
    if (isfinite(y))
        fprintf(p->to, "<rect class=\"f%d\" x=\"%.3f%%\" y=\"%.1f\" width=\"%.3f%%\" height=\"%.1f\"/>",
                tint % SVG_TINTS, 100 * left, top, 100 * (right - left), p->height - top);
}

void svg_whisker(SvgPlot *p, double x, double y, double low, double high, int tint)
{
    if (!isfinite(y)) return;
    double at = 100 * share_x(p, x), bottom = place_y(p, low), top = place_y(p, high);
    if (isfinite(low) && isfinite(high))
        fprintf(p->to,
                "<svg x=\"%.3f%%\"><path class=\"line l%d\" stroke-width=\"2\" "
                "d=\"M0 %.1fV%.1fM-5 %.1fh10M-5 %.1fh10\"/></svg>",
                at, tint % SVG_TINTS, bottom, top, bottom, top);
    fprintf(p->to, "<circle class=\"f%d\" r=\"4.5\" cx=\"%.3f%%\" cy=\"%.1f\"/>", tint % SVG_TINTS, at, place_y(p, y));
}

void svg_straight(SvgPlot *p, double left, double right, const char *name)
{
    fprintf(p->to, "<line class=\"level\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", place_y(p, left),
            place_y(p, right));
    if (name) label_add(p, right, 5, name);
}

void svg_mark(SvgPlot *p, double x)
{
    double at = 100 * share_x(p, x);
    fprintf(p->to, "<line class=\"mark\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"%.1f\"/>", at, at, p->height);
}

/* ---- names at the ends of lines */

static int by_height(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b; /* the first member of a label */
    return (x > y) - (x < y);
}

/* Move labels apart: downward from the top, then upward from the bottom if they left the plot. */
static void labels_part(SvgPlot *p)
{
    qsort(p->label, (size_t)p->labels, sizeof p->label[0], by_height);
    for (int i = 1; i < p->labels; i++) p->label[i].y = fmax(p->label[i].y, p->label[i - 1].y + LINE_HEIGHT);
    double room = p->height;
    for (int i = p->labels - 1; i >= 0; i--) {
        p->label[i].y = fmin(p->label[i].y, room);
        room = p->label[i].y - LINE_HEIGHT;
    }
}

void svg_close(SvgPlot *p)
{
    labels_part(p);
    for (int i = 0; i < p->labels; i++)
        svg_printf(p->to, "<text class=\"name\" style=\"fill:var(--c%d)\" x=\"100%%\" dx=\"8\" y=\"%.1f\">%s</text>",
                   p->label[i].tint % SVG_TINTS, p->label[i].y + 4, p->label[i].text);
    values_close(p);
    fputs("</svg>\n", p->to);
    if (!p->labels) return;
    fputs("<p class=\"legend\" aria-hidden=\"true\">", p->to);
    for (int i = 0; i < p->labels; i++) {
        fputs("<span>", p->to);
        svg_sample(p->to, p->label[i].tint);
        svg_printf(p->to, "%s</span>", p->label[i].text);
    }
    fputs("</p>\n", p->to);
}

/* ---- heat maps */

static void heat_cell(FILE *to, const SvgHeat *h, int row, int column, double top, double cell)
{
    int64_t index = (int64_t)row * h->columns + column;
    double share = h->share[index], x = h->left + column * cell, y = top + row * h->row_height;
    if (!(share > 0)) return; /* an empty cell has the color of the page */
    double gap = cell > 8 && h->row_height > 8 ? 1 : 0;
    fprintf(to, "<rect class=\"f%d\" fill-opacity=\"%.3f\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\"/>",
            h->tint, fmin(fmax(share, 0), 1), x, y, cell - gap, h->row_height - gap);
    if (!h->number || h->number[index] == 0 || cell < 24) return;
    fprintf(to, "<text class=\"mid %s\" x=\"%.1f\" y=\"%.1f\">%" PRId64 "</text>", share > 0.55 ? "full" : "cell",
            x + cell / 2, y + h->row_height / 2 + 4, h->number[index]);
}

void svg_heat(FILE *to, const SvgHeat *h)
{
    double top = h->y_label ? 22 : 4, bottom = (h->column_names ? 18 : 2) + (h->x_label ? 20 : 0),
           cell = (h->width - h->left - 6) / h->columns, end = top + h->rows * h->row_height;
    svg_printf(to, "<svg class=\"map\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">", h->width, end + bottom,
               h->title);
    for (int r = 0; r < h->rows; r++)
        for (int c = 0; c < h->columns; c++) heat_cell(to, h, r, c, top, cell);
    for (int r = 0; h->row_names && r < h->rows; r++)
        svg_printf(to, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>", h->left - 8,
                   top + (r + 0.5) * h->row_height + 4, h->row_names[r]);
    for (int c = 0; h->column_names && c < h->columns; c++)
        svg_printf(to, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", h->left + (c + 0.5) * cell,
                   top + h->rows * h->row_height + 16, h->column_names[c]);
    if (h->y_label) fprintf(to, "<text class=\"end\" x=\"%.1f\" y=\"13\">%s</text>", h->left - 8, h->y_label);
    if (h->x_label)
        fprintf(to, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", (h->left + h->width) / 2, end + bottom - 4,
                h->x_label);
    fputs("</svg>\n", to);
}
