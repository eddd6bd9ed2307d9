/* Write plots; see svg.h. Input is in data coordinates, output in pixels of the viewBox with one decimal. */
#include "inception/report/svg.h"

#include <float.h>

enum { LEFT = 56, RIGHT = 118, BARE = 14, TOP = 10, BOTTOM = 38, LINE_HEIGHT = 15 };
enum { COLUMNS_MAX = 700, TICKS = 5, TICKS_MOST = 40 };

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

static double place_x(const SvgPlot *p, double x)
{
    const SvgFrame *f = &p->frame;
    double share = (x - f->x_low) / (f->x_high - f->x_low);
    return p->left + fmin(fmax(share, 0), 1) * (p->right - p->left);
}

static double place_y(const SvgPlot *p, double y)
{
    const SvgFrame *f = &p->frame;
    double share = f->y_log ? (log10(fmax(y, DBL_MIN)) - log10(f->y_low)) / (log10(f->y_high) - log10(f->y_low))
                            : (y - f->y_low) / (f->y_high - f->y_low);
    return p->bottom - fmin(fmax(share, 0), 1) * (p->bottom - p->top);
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
            "<line class=\"rule\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"end\" x=\"%.1f\" "
            "y=\"%.1f\">%s</text>",
            p->left, p->right, y, y, p->left - 8, y + 4, text);
}

static void x_tick(const SvgPlot *p, double value, const char *text)
{
    svg_printf(p->to, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", place_x(p, value), p->bottom + 17, text);
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

/* Axis ends are limited so that powers of ten do not overflow a double. */
static void y_axis_log(SvgPlot *p)
{
    static const double steps[] = {1, 2, 5};
    SvgFrame *f = &p->frame;
    f->y_low = round_log(fmin(fmax(f->y_low, LOG_LEAST), LOG_MOST), false);
    f->y_high = round_log(fmin(fmax(f->y_high, LOG_LEAST), LOG_MOST), true);
    if (f->y_low >= f->y_high) f->y_high = 10 * f->y_low;
    double decades = log10(f->y_high) - log10(f->y_low); /* the quotient could overflow */
    int first = (int)floor(log10(f->y_low)), last = (int)ceil(log10(f->y_high)), every = 1 + (int)decades / 7;
    for (int exponent = first; exponent <= last; exponent += every) {
        double power = pow(10, exponent);
        for (int i = 0; i < (decades < 2.5 ? 3 : 1); i++)
            if (steps[i] * power >= f->y_low * 0.999 && steps[i] * power <= f->y_high * 1.001)
                y_tick(p, steps[i] * power, 0);
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
        y_axis_log(p);
        return;
    }
    double tick = svg_nice(&f->y_low, &f->y_high);
    int count = tick_count(f->y_low, f->y_high, tick);
    for (int i = 0; i <= count; i++) y_tick(p, f->y_low + i * tick, tick);
}

void svg_open(SvgPlot *plot, FILE *to, const SvgFrame *frame)
{
    *plot = (SvgPlot){.to = to, .frame = *frame, .left = LEFT, .top = TOP};
    plot->right = frame->width - (frame->bare ? BARE : RIGHT);
    plot->bottom = frame->height - BOTTOM;
    svg_printf(to, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">", frame->width, frame->height,
               frame->title);
    y_axis(plot);
    SvgFrame *f = &plot->frame;
    fprintf(plot->to, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", plot->left, plot->right,
            plot->bottom, plot->bottom);
    if (f->categories) {
        f->x_low = -0.6;
        f->x_high = f->category_count - 0.4;
        for (int i = 0; i < f->category_count; i++) x_tick(plot, i, f->categories[i]);
    } else {
        double low = f->x_low, high = f->x_high, tick = svg_nice(&low, &high);
        if (!(f->x_low < f->x_high)) f->x_low = low, f->x_high = high;
        int count = tick_count(low, high, tick);
        for (int i = 0; i <= count; i++) {
            char text[32];
            double v = low + i * tick;
            if (v > f->x_high + tick * 1e-6) break;
            tick_text(v, tick, text);
            if (v >= f->x_low - tick * 1e-6) x_tick(plot, v, text);
        }
    }
    if (!f->x_label) return;
    svg_printf(plot->to, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%s</text>", (plot->left + plot->right) / 2,
               plot->bottom + 33, f->x_label);
}

/* ---- data */

static void label_add(SvgPlot *p, double y, int tint, const char *name)
{
    if (!name || p->labels == SVG_LABELS || !isfinite(y)) return;
    p->label[p->labels].y = place_y(p, y);
    p->label[p->labels].tint = tint % SVG_TINTS;
    snprintf(p->label[p->labels++].text, SVG_LABEL_BYTES, "%s", name);
}

/* Append a point to the path; after a gap it starts a new line. */
static void point_put(const SvgPlot *p, double x, double y, bool *pen_down)
{
    if (!isfinite(y)) {
        *pen_down = false;
        return;
    }
    fprintf(p->to, "%c%.1f %.1f", *pen_down ? 'L' : 'M', place_x(p, x), place_y(p, y));
    *pen_down = true;
}

/* Append the minimum and the maximum of points first .. end - 1, in the order in which they occur. */
static void column_put(const SvgPlot *p, const double *x, const double *y, int64_t first, int64_t end, bool *pen_down)
{
    int64_t low = -1, high = -1;
    bool gap = false;
    for (int64_t i = first; i < end; i++) {
        gap |= !isfinite(y[i]);
        if (!isfinite(y[i])) continue;
        if (low < 0 || y[i] < y[low]) low = i;
        if (high < 0 || y[i] > y[high]) high = i;
    }
    if (gap || low < 0) *pen_down = false;
    if (low < 0) return;
    point_put(p, x[low < high ? low : high], y[low < high ? low : high], pen_down);
    if (low != high) point_put(p, x[low < high ? high : low], y[low < high ? high : low], pen_down);
}

/* Its color, and beyond the colors its dashes. */
static void line_begin(FILE *to, int tint, double width)
{
    static const char *const dashes[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 4\""};
    fprintf(to, "<path class=\"line l%d\"%s stroke-width=\"%g\" d=\"", tint % SVG_TINTS, dashes[tint / SVG_TINTS % 3],
            width);
}

void svg_sample(FILE *to, int tint)
{
    fputs("<svg class=\"sample\" viewBox=\"0 0 40 10\" aria-hidden=\"true\">", to);
    line_begin(to, tint, 2.5);
    fputs("M2 5L38 5\"/></svg>", to);
}

void svg_line(SvgPlot *p, const double *x, const double *y, int64_t count, int tint, double width, const char *name)
{
    bool pen_down = false;
    int64_t columns = count > 2 * COLUMNS_MAX ? COLUMNS_MAX : count;
    double last = NAN;
    line_begin(p->to, tint, width);
    for (int64_t k = 0; k < columns; k++)
        column_put(p, x, y, count * k / columns, count * (k + 1) / columns, &pen_down);
    fputs("\"/>", p->to);
    for (int64_t i = 0; i < count; i++)
        if (isfinite(y[i])) last = y[i];
    label_add(p, last, tint, name);
}

void svg_dots(SvgPlot *p, const double *x, const double *y, int64_t count, int tint)
{
    for (int64_t i = 0; i < count; i++)
        if (isfinite(y[i]))
            fprintf(p->to, "<circle class=\"f%d\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>", tint % SVG_TINTS,
                    place_x(p, x[i]), place_y(p, y[i]));
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
    fprintf(p->to, "<path class=\"band f%d\" d=\"", tint);
    for (int64_t k = 0; k < columns; k++)
        edge_put(p, x, high, count * k / columns, count * (k + 1) / columns, 1, &pen_down);
    for (int64_t k = columns - 1; k >= 0; k--)
        edge_put(p, x, low, count * k / columns, count * (k + 1) / columns, -1, &pen_down);
    fputs("Z\"/>", p->to);
    if (count) label_add(p, high[count - 1], tint, name);
}

void svg_bar(SvgPlot *p, double x, double y, double width, int tint)
{
    double x0 = place_x(p, x - width / 2), x1 = place_x(p, x + width / 2), top = place_y(p, y);
    if (isfinite(y))
        fprintf(p->to, "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", tint, x0, top,
                fmax(x1 - x0 - 1, 0.5), p->bottom - top);
}

void svg_whisker(SvgPlot *p, double x, double y, double low, double high, int tint)
{
    if (!isfinite(y)) return;
    double at = place_x(p, x);
    if (isfinite(low) && isfinite(high))
        fprintf(p->to, "<path class=\"line l%d\" stroke-width=\"2\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh10M%.1f %.1fh10\"/>",
                tint, at, place_y(p, low), place_y(p, high), at - 5, place_y(p, low), at - 5, place_y(p, high));
    fprintf(p->to, "<circle class=\"f%d\" r=\"4.5\" cx=\"%.1f\" cy=\"%.1f\"/>", tint, at, place_y(p, y));
}

void svg_level(SvgPlot *p, double y, const char *name)
{
    fprintf(p->to, "<line class=\"level\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", p->left, p->right,
            place_y(p, y), place_y(p, y));
    label_add(p, y, 5, name);
}

void svg_mark(SvgPlot *p, double x)
{
    fprintf(p->to, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", place_x(p, x),
            place_x(p, x), p->top, p->bottom);
}

/* ---- names at the ends of lines */

static int by_height(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b; /* the first member of a label */
    return (x > y) - (x < y);
}

void svg_close(SvgPlot *p)
{
    /* Move labels apart: downward from the top, then upward from the bottom if they left the picture. */
    qsort(p->label, (size_t)p->labels, sizeof p->label[0], by_height);
    for (int i = 1; i < p->labels; i++) p->label[i].y = fmax(p->label[i].y, p->label[i - 1].y + LINE_HEIGHT);
    double room = p->bottom;
    for (int i = p->labels - 1; i >= 0; i--) {
        p->label[i].y = fmin(p->label[i].y, room);
        room = p->label[i].y - LINE_HEIGHT;
    }
    for (int i = 0; i < p->labels; i++)
        svg_printf(p->to, "<text class=\"name\" style=\"fill:var(--c%d)\" x=\"%.1f\" y=\"%.1f\">%s</text>",
                   p->label[i].tint, p->right + 8, p->label[i].y + 4, p->label[i].text);
    fputs("</svg>\n", p->to);
}

/* ---- heat maps */

static void heat_cell(FILE *to, const SvgHeat *h, int row, int column, double top, double cell)
{
    int64_t index = (int64_t)row * h->columns + column;
    double share = h->share[index], x = h->left + column * cell, y = top + row * h->row_height;
    if (!isfinite(share)) return;
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
    svg_printf(to, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">", h->width, end + bottom, h->title);
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
