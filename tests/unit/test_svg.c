/* Plots as text: ticks, coordinates inside the picture, gaps, spikes that thinning must keep, separate labels,
 * escapes. */

#include "inception/report/page/svg.h"
#include "tests/support/unit.h"

static char *text;
static size_t bytes;

static SvgPlot plot_start(double y_low, double y_high, bool y_log)
{
    SvgPlot plot;
    SvgFrame frame = {.title = "a \"plot\" <1>",
                      .x_label = "step",
                      .height = 300,
                      .x_low = 0,
                      .x_high = 100,
                      .y_low = y_low,
                      .y_high = y_high,
                      .y_log = y_log};
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    svg_open(&plot, to, &frame);
    return plot;
}

static void plot_end(SvgPlot *plot)
{
    svg_close(plot);
    assert_int_equal(fclose(plot->to), 0);
}

static int count_of(const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) count++;
    return count;
}

TEST(nice_ends)
{
    static const double rows[][5] = {{0.03, 0.97, 0, 1, 0.2}, {-3, 11, -4, 12, 4},         {0, 0, 0, 1, 0.2},
                                     {5, 5, 2, 8, 1},         {1e-9, 9e-9, 0, 1e-8, 2e-9}, {0, 1e7, 0, 1e7, 2e6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double low = rows[i][0], high = rows[i][1], tick = svg_nice(&low, &high);
        assert_true(low <= rows[i][0] + 1e-12 && high >= rows[i][1] - 1e-12);
        assert_true((high - low) / tick >= 1.9 && (high - low) / tick < 12);
        if (i != 1 && i != 3) assert_true(fabs(high - rows[i][3]) < 1e-9 * fabs(high));
    }
    double low = INFINITY, high = -INFINITY; /* nothing to show */
    svg_nice(&low, &high);
    assert_true(low == 0 && high == 1);
}

/* Every coordinate of every path is inside the area for data, which is 1000 units wide whatever the page makes of them. */
TEST(lines_stay_inside)
{
    double x[50], y[50];
    for (int i = 0; i < 50; i++) x[i] = 4 * i - 50, y[i] = i % 7 * 1e3 - 2e3; /* far outside on all sides */
    SvgPlot plot = plot_start(0, 1, false);
    svg_curve(&plot, x, y, 50, 0, 1, "y");
    plot_end(&plot);
    const char *at = strstr(text, " d=\"");
    assert_non_null(at);
    for (at += 4; *at == 'M' || *at == 'L';) {
        char *end;
        double px = strtod(at + 1, &end), py = strtod(end, (char **)&at);
        assert_true(px >= 0 && px <= 1000 && py >= 0 && py <= plot.height);
    }
    free(text);
}

/* Axes of any numbers end, with a handful of ticks: where a tick does not change a number, or is too small for one. */
TEST(axes_of_any_numbers)
{
    static const double ends[][2] = {{1e16, 1e16 + 2},
                                     {5e-324, 1e-323},
                                     {0, 5e-324},
                                     {-5e-324, 5e-324},
                                     {9e15, 9e15 + 1},
                                     {1e308, 1.7e308},
                                     {-1.7e308, 1.7e308},
                                     {1, 1.0000000000000002},
                                     {5e-324, 1.7e308},
                                     {-1e-310, 1e308},
                                     {3, 3},
                                     {0, 0}};
    for (size_t i = 0; i < 2 * sizeof ends / sizeof *ends; i++) {
        SvgPlot plot;
        const double *e = ends[i / 2];
        SvgFrame frame = {.title = "",
                          .x_label = "",
                          .height = 300,
                          .x_low = e[0],
                          .x_high = e[1],
                          .y_low = e[0],
                          .y_high = e[1],
                          .y_log = i % 2};
        FILE *to = open_memstream(&text, &bytes);
        svg_open(&plot, to, &frame);
        svg_line(&plot, e, e, 2, 0, 1, "name");
        plot_end(&plot);
        assert_true(bytes < 10000);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        free(text);
    }
}

TEST(gaps)
{
    double x[] = {0, 1, 2, 3, 4, 5}, y[] = {1, 2, NAN, 3, INFINITY, 4};
    SvgPlot plot = plot_start(0, 5, false);
    svg_curve(&plot, x, y, 6, 0, 1, "end");
    plot_end(&plot);
    assert_int_equal(count_of("M"), 3);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
    for (int i = 0; i < 6; i++) y[i] = NAN; /* nothing at all */
    plot = plot_start(INFINITY, -INFINITY, false);
    svg_line(&plot, x, y, 6, 0, 1, "end");
    svg_band(&plot, x, y, y, 6, 0, "band");
    svg_dots(&plot, x, y, 6, 0);
    svg_whisker(&plot, 1, NAN, 0, 1, 0);
    plot_end(&plot);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, ">end<"));
    assert_non_null(strstr(text, "data-y=\"- - - - - -\""));
    free(text);
}

/* A hundred thousand points become few, and the one that matters is still there. */
TEST(spikes_survive)
{
    enum { N = 100000 };
    double *x = calloc(2 * N, sizeof *x), *y = x + N;
    for (int i = 0; i < N; i++) x[i] = i / 1000.0, y[i] = 0.5;
    y[54321] = 1;
    SvgPlot plot = plot_start(0, 1, false);
    svg_curve(&plot, x, y, N, 0, 1, "y");
    plot_end(&plot);
    assert_true(bytes < 50000);
    assert_non_null(strstr(text, " 0.0L"));
    char *values = strstr(text, "data-y=\""); /* and a pointer finds it, at its place */
    assert_non_null(values);
    assert_non_null(strstr(values, "0.5 1 0.5"));
    assert_non_null(strstr(text, " 54.321 "));
    free(text);
    free(x);
}

TEST(log_axis)
{
    SvgPlot plot = plot_start(0.02, 700, true);
    plot_end(&plot);
    assert_true(fabs(plot.frame.y_low - 0.02) < 1e-9 && fabs(plot.frame.y_high - 1000) < 1e-6);
    assert_non_null(strstr(text, ">0.1<"));
    assert_non_null(strstr(text, ">1000<"));
    assert_int_equal(count_of("class=\"rule\""), 5);
    free(text);
    plot = plot_start(0.31, 4.7, true);
    plot_end(&plot);
    assert_non_null(strstr(text, ">0.2<"));
    assert_non_null(strstr(text, ">5<"));
    assert_int_equal(count_of("class=\"rule\""), 5); /* 0.2 0.5 1 2 5 */
    free(text);
    plot = plot_start(0, 700, true); /* no logarithm of 0: a plain axis */
    plot_end(&plot);
    assert_false(plot.frame.y_log);
    free(text);
}

/* The texts of the ticks below the plot, each with a blank behind it. */
static void ticks_are(double low, double high, bool whole, bool logarithmic, const char *wanted)
{
    SvgPlot plot;
    SvgFrame frame = {
        .title = "", .height = 300, .x_low = low, .x_high = high, .x_whole = whole, .x_log = logarithmic, .y_high = 1};
    char found[256] = "";
    FILE *to = open_memstream(&text, &bytes);
    svg_open(&plot, to, &frame);
    plot_end(&plot);
    for (const char *at = text; (at = strstr(at, "class=\"mid\""));) {
        at = strchr(at, '>') + 1;
        strncat(found, at, strcspn(at, "<"));
        strcat(found, " ");
    }
    free(text);
    assert_string_equal(found, wanted);
}

/* Epochs have no halves, and one alone has no neighbors 0.4 and 1.6. */
TEST(whole_ticks)
{
    ticks_are(1, 1, true, false, "0 1 ");
    ticks_are(1, 2, true, false, "1 2 ");
    ticks_are(1, 3, true, false, "1 2 3 ");
    ticks_are(1, 7, true, false, "2 4 6 ");
    ticks_are(3, 5, true, false, "3 4 5 ");
    ticks_are(1, 2, false, false, "1 1.2 1.4 1.6 1.8 2 ");
    ticks_are(0.0002, 0.07, false, true, "0.001 0.01 0.1 ");
    ticks_are(0.0001, 0.01, false, true, "0.0001 0.001 0.01 ");
    ticks_are(0.001, 0.02, false, true, "0.001 0.002 0.005 0.01 0.02 ");
    ticks_are(0, 0.07, false, true, "0 0.02 0.04 0.06 "); /* no logarithm of 0 */
}

/* What a pointer reads: curves of one length have the same points; ranges have two ends. */
TEST(values)
{
    enum { N = 5000 };
    double *x = calloc(3 * N, sizeof *x), *y = x + N, *z = y + N;
    for (int i = 0; i < N; i++) x[i] = i + 1, y[i] = i % 13, z[i] = -i;
    SvgPlot plot = plot_start(0, 12, false);
    svg_raw(&plot, x, y, N, 0, "y");
    svg_line(&plot, x, z, N, 1, 1, "z");
    svg_band(&plot, x, z, y, 3, 2, "both");
    plot_end(&plot);
    char *first = strstr(text, "data-name=\"y\""), *second = strstr(text, "data-name=\"z\"");
    assert_true(first && second);
    char *x_first = strstr(first, "data-x="), *x_second = strstr(second, "data-x=");
    size_t length = strcspn(x_first + 8, "\"");
    assert_true(length > 1000 && length < 4000);
    assert_true(!strncmp(x_first, x_second, length + 9));
    assert_non_null(
        strstr(text, "data-name=\"both\" data-tint=\"2\" data-x=\"1 2 3\" data-y=\"0 -1 -2\" data-high=\"0 1 2\"/>"));
    assert_non_null(strstr(text, "<g class=\"axes\" data-x=\"0 100 0\" data-y=\"0 15 0\" data-label=\"step\"/>"));
    free(text);
    free(x);
}

TEST(labels_apart)
{
    SvgPlot plot = plot_start(0, 1, false);
    for (int i = 0; i < 5; i++)
        svg_straight(&plot, i < 3, i < 3, "same height"); /* three at the top, two at the bottom */
    plot_end(&plot);
    double before = -INFINITY;
    for (const char *at = text; (at = strstr(at, "class=\"name\"")); at++) {
        double y = strtod(strstr(at, " y=\"") + 4, NULL);
        assert_true(y - before >= 14 && y > 0 && y < 300);
        before = y;
    }
    assert_int_equal(count_of("same height"), 10); /* at the ends of the lines, and in the legend */
    free(text);
}

/* Lines are told apart by colors, and from the tenth on by dashes too. */
TEST(many_lines)
{
    enum { LINES = 27 };
    static const double ends[] = {0, 1};
    char *style[LINES];
    SvgPlot plot = plot_start(0, 1, false);
    for (int i = 0; i < LINES; i++) svg_curve(&plot, ends, ends, 2, i, 1, "y");
    plot_end(&plot);
    const char *at = text;
    for (int i = 0; i < LINES; i++, at++) {
        at = strstr(at, "<path");
        assert_non_null(at);
        style[i] = strndup(at, (size_t)(strstr(at, " d=") - at));
        assert_int_equal(strstr(style[i], "dasharray") != NULL, i >= 9);
        for (int k = 0; k < i; k++) assert_string_not_equal(style[k], style[i]);
    }
    for (int i = 0; i < LINES; i++) free(style[i]);
    free(text);
}

TEST(escapes)
{
    FILE *to = open_memstream(&text, &bytes);
    svg_text(to, "<b a=\"1\">&\x01");
    fclose(to);
    assert_string_equal(text, "&lt;b a=&quot;1&quot;&gt;&amp;");
    free(text);
    SvgPlot plot = plot_start(0, 1, false);
    svg_straight(&plot, 0.5, 0.5, "<i>");
    svg_curve(&plot, &(double){1}, &(double){1}, 1, 0, 1, "\"<i>");
    plot_end(&plot);
    assert_null(strstr(text, "<i>"));
    assert_null(strstr(text, "<1>"));
    free(text);
}

TEST(heat_maps)
{
    static const double share[] = {0, 0.5, 1, NAN, 2, -1};
    static const int64_t number[] = {0, 5, 10, 0, 20, 0};
    static const char *const rows[] = {"a", "b&c"}, *const columns[] = {"x", "y", "z"};
    SvgHeat heat = {.title = "t",
                    .rows = 2,
                    .columns = 3,
                    .share = share,
                    .number = number,
                    .row_names = rows,
                    .column_names = columns,
                    .x_label = "predicted",
                    .y_label = "true",
                    .width = 400,
                    .row_height = 30,
                    .left = 80,
                    .tint = 1};
    FILE *to = open_memstream(&text, &bytes);
    svg_heat(to, &heat);
    fclose(to);
    assert_int_equal(count_of("<rect"), 3); /* empty cells are none */
    assert_non_null(strstr(text, ">b&amp;c<"));
    assert_non_null(strstr(text, ">20<"));
    assert_null(strstr(text, "fill-opacity=\"2"));
    assert_null(strstr(text, "fill-opacity=\"-"));
    free(text);
}
