/* A text built of pieces stays inside its buffer: what does not fit is cut off and noted, and the text is always
 * terminated. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "kernels/base/text.h"
#include "tests/support/unit.h"
#include "towers/files/csv.h"

TEST(pieces_fit)
{
    char buffer[16];
    Text text = text_start(buffer, sizeof buffer);
    assert_string_equal(buffer, "");
    text_add(&text, "%s %d", "step", 12);
    text_add(&text, ", %d", 345);
    assert_string_equal(buffer, "step 12, 345");
    assert_int_equal(text.used, 12);
    assert_false(text.truncated);
}

TEST(what_does_not_fit_is_cut_off)
{
    char memory[64];
    memset(memory, '#', sizeof memory);
    for (size_t room = 1; room < 20; room++) {
        Text text = text_start(memory, room);
        for (int i = 0; i < 5; i++) text_add(&text, "%.4f ", 1e38); /* each longer than the buffer */
        assert_int_equal(strlen(memory), room - 1);
        assert_int_equal(text.used, room - 1);
        assert_true(text.truncated);
        for (size_t i = room; i < sizeof memory; i++) assert_int_equal(memory[i], '#');
    }
}

TEST(nothing_is_written_where_there_is_no_room)
{
    Text text = text_start(NULL, 0);
    text_add(&text, "x");
    assert_true(text.truncated && text.used == 0);
}

TEST(it_goes_on_behind_a_string)
{
    char buffer[8] = "abc", full[4] = {'a', 'b', 'c', 'd'};
    Text text = text_behind(buffer, sizeof buffer), end = text_behind(full, sizeof full);
    text_add(&text, "%s", "defghi");
    assert_string_equal(buffer, "abcdefg");
    text_add(&end, "x");
    assert_string_equal(full, "abc"); /* one that was not terminated is, from then on */
}

/* fault: F27 */
TEST(control_characters_are_shown)
{
    char *shown = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&shown, &bytes);
    text_print(to, "a\tb\n\033[2J\007\177\302\233x\302\251\377");
    assert_int_equal(fclose(to), 0);
    assert_string_equal(shown, "a\tb\n\\x1b[2J\\x07\\x7f\\xc2\\x9bx\302\251\377");
    free(shown);
}

/* A shell reads the word back, and a terminal does not obey it. */
TEST(words_of_a_shell_are_quoted)
{
    static const char *const rows[][2] = {{"runs/a_1", "runs/a_1"},
                                          {"", "''"},
                                          {"it's a\\b", "'it'\\''s a\\b'"},
                                          {"\303\251 $x", "'\303\251 $x'"},
                                          {"it's a\\b\033[2J\n\302\233", "$'it\\'s a\\\\b\\x1b[2J\\x0a\\xc2\\x9b'"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *shown = NULL;
        size_t bytes = 0;
        FILE *to = open_memstream(&shown, &bytes);
        text_shell(to, rows[i][0]);
        assert_int_equal(fclose(to), 0);
        assert_string_equal(shown, rows[i][1]);
        free(shown);
    }
}

/* Each text of a format stays on its line; the format's own line breaks, widths and numbers are those of printf. */
TEST(texts_stay_on_their_lines)
{
    char *shown = NULL, wanted[200];
    size_t bytes = 0;
    FILE *to = open_memstream(&shown, &bytes);
    text_printf(to, "%s|%-4s|%.2s|%*s\n\t", "a\n\033[2Jb\t", "xy", "\001\002\003", 3, "z");
    text_printf(to, "%d %5u %zu %lld %x %c %% %.3f %g %.*e %ld", -7, 8u, (size_t)1 << 40, -(1LL << 40), 255u, 'c', 2.5,
                0.1, 2, 1.5, 1L << 33);
    assert_int_equal(fclose(to), 0);
    snprintf(wanted, sizeof wanted, "%s\n\t%d %5u %zu %lld %x %c %% %.3f %g %.*e %ld",
             "a\\x0a\\x1b[2Jb\\x09|xy  |\\x01\\x02|  z", -7, 8u, (size_t)1 << 40, -(1LL << 40), 255u, 'c', 2.5, 0.1, 2,
             1.5, 1L << 33);
    assert_string_equal(shown, wanted);
    free(shown);
}

/* A cell has its width on the terminal: umlauts of one and of two code points, characters that take two columns. */
TEST(cells_count_columns)
{
    static const char *const rows[][2] = {
        {"B\303\244ume", "B\303\244ume  |  B\303\244ume|"},
        {"Ba\314\210ume", "Ba\314\210ume  |  Ba\314\210ume|"},
        {"\347\212\254", "\347\212\254     |     \347\212\254|"},
        {"\360\237\220\266\347\212\254\347\212\254\347\212\254",
         "\360\237\220\266\347\212\254\347\212\254 | \360\237\220\266\347\212\254\347\212\254|"},
        {"H\303\244userreihe", "H\303\244userr|H\303\244userr|"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *shown = NULL;
        size_t bytes = 0;
        FILE *to = open_memstream(&shown, &bytes);
        text_printf(to, "%-7.7s|%*.*s|", rows[i][0], 7, 7, rows[i][0]);
        assert_int_equal(fclose(to), 0);
        assert_string_equal(shown, rows[i][1]);
        free(shown);
    }
}

/* A text stays on its line of CSV, and one with a control character is not that with a blank. */
TEST(fields_of_csv_are_lines)
{
    static const char *const rows[][2] = {{"a b", "\"a b\""},
                                          {"a\nb", "\"a\\x0ab\""},
                                          {"a\tb\r", "\"a\\x09b\\x0d\""},
                                          {"\"a\", b", "\"\"\"a\"\", b\""},
                                          {"B\303\244ume", "\"B\303\244ume\""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *shown = NULL;
        size_t bytes = 0;
        FILE *to = open_memstream(&shown, &bytes);
        csv_text(to, rows[i][0]);
        assert_int_equal(fclose(to), 0);
        assert_string_equal(shown, rows[i][1]);
        free(shown);
    }
}

TEST(signals_have_names)
{
    char name[SIGNAL_TEXT_BYTES];
    assert_string_equal(signal_text(SIGINT, name), "SIGINT");
    assert_string_equal(signal_text(SIGXFSZ, name), "SIGXFSZ");
    assert_string_equal(signal_text(40, name), "signal 40");
    assert_string_equal(signal_text(-2000000000, name), "signal -2000000000");
}

TEST(durations)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0.2, "1 second"},    {59.5, "60 seconds"}, {130, "2 minutes"},
                {5000, "83 minutes"}, {9000, "2.5 hours"},  {86400 * 3.25, "3.2 days"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[DURATION_TEXT];
        assert_string_equal(duration_text(rows[i].seconds, text), rows[i].text);
    }
}

enum { PRINTERS = 4, LINES = 2000 };

static void *lines_print(void *to)
{
    for (int i = 0; i < LINES; i++) text_printf(to, "skipped: %s: %s\n", "an image", "what is wrong with it");
    return NULL;
}

/* As stderr, a file without a buffer is written piece by piece. */
TEST(lines_of_threads_are_whole)
{
    char line[200];
    int whole = 0;
    FILE *to = tmpfile();
    pthread_t printer[PRINTERS];
    assert_non_null(to);
    setbuf(to, NULL);
    for (int i = 0; i < PRINTERS; i++) assert_int_equal(pthread_create(&printer[i], NULL, lines_print, to), 0);
    for (int i = 0; i < PRINTERS; i++) pthread_join(printer[i], NULL);
    rewind(to);
    while (fgets(line, sizeof line, to)) whole += !strcmp(line, "skipped: an image: what is wrong with it\n");
    assert_int_equal(whole, PRINTERS * LINES);
    fclose(to);
}
