/* The settings in state.json: an object, or in checkpoints of earlier versions one text of lines "key: value". */
#include "tests/support/unit.h"
#include "towers/files/json.h"
#include "towers/replica/run_state.h"

/* The settings {"towers": "2", "sched": "rise-fall", "rate": "0.5", "late": "-1"}, of which the last two are defaults. */
static void parse_finds(int64_t restarts, const char *settings, Status wanted, const char *says)
{
    char *state = NULL;
    json_t *now = json_pack("{s:s, s:s, s:s, s:s, s:s}", "towers", "2", "sched", "rise-fall", "rate", "0.5", "late",
                            "-1", "processes", "4");
    json_t *usual = json_pack("{s:s, s:s, s:s, s:s}", "rate", "0.5", "late", "-1", "sched", "constant", "former", "");
    const TrainJob job = {.settings = now, .setting_defaults = usual, .restarts = restarts};
    TowerProcess p = {.job = &job};
    assert_true(asprintf(&state, "{%s}", settings) > 0);
    Status st = run_state_parse(&p, state, "CKPT");
    if (st != wanted || !strstr(status_message(), says))
        fail_msg("%s: status %d, %s; expected %d, %s", settings, st, status_message(), wanted, says);
    free(state);
    json_decref(now);
    json_decref(usual);
}

/* Nothing but the settings is there, so that the first number is missed where they are right. */
static void fits(const char *settings)
{
    parse_finds(0, settings, ERR_CHECKPOINT, "is missing or not a number");
}

TEST(test_equal_settings)
{
    fits("\"settings\": {\"towers\": \"2\", \"sched\": \"rise-fall\", \"processes\": \"4\", \"rate\": \"0.5\", "
         "\"late\": \"-1\"}");
    fits("\"settings\": \"processes: 4\\ntowers: 2\\nsched: rise-fall\\nrate: 0.5\\nlate: -1\\n\"");
    fits(
        "\"settings\": {\"towers\": \"2\", \"sched\": \"rise-fall\", \"processes\": \"4\"}"); /* later ones are as usual */
    fits("\"settings\": \"towers: 2\\nsched: onecycle\\nprocesses: 4\"");                     /* an earlier word */
    fits("\"settings\": \"towers: 2\\nsched: rise-fall\\nprocesses: 4\\nformer: ii-s\\n\""); /* an earlier option */
}

TEST(test_other_settings)
{
    parse_finds(0, "\"settings\": {\"towers\": \"3\", \"sched\": \"rise-fall\", \"processes\": \"4\"}", ERR_ARG,
                "differ:\n  then towers: 3, now towers: 2\n  (use");
    parse_finds(0, "\"settings\": \"towers: 3\\nprocesses: 4\\n\"", ERR_ARG,
                "differ:\n  then towers: 3, now towers: 2\n  then nothing, now sched: rise-fall\n  (use");
    parse_finds(0, "\"settings\": \"towers: 2\\nsched: rise-fall\\nprocesses: 4\\nlate: 7\\nodd\\n\\ntime: 10:30\"",
                ERR_ARG,
                "differ:\n  then late: 7, now late: not set\n  then odd: not set, now nothing\n  then time: 10:30, now "
                "nothing\n  (use");
    parse_finds(0, "\"settings\": {}", ERR_ARG, "then nothing, now towers: 2");
}

TEST(test_a_restart_changes_the_processes)
{
    const char *settings = "\"settings\": {\"towers\": \"2\", \"sched\": \"rise-fall\", \"processes\": \"8\"}";
    parse_finds(0, settings, ERR_ARG, "then processes: 8, now processes: 4");
    parse_finds(1, settings, ERR_CHECKPOINT, "is missing or not a number");
}

TEST(test_no_settings)
{
    const char *wrong[] = {"", "\"settings\": 5", "\"settings\": null", "\"settings\": [\"towers: 2\"]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        parse_finds(0, wrong[i], ERR_CHECKPOINT, "CKPT/state.json: 'settings' is missing or not an object");
    parse_finds(0, "\"settings\": {\"towers\": 2}", ERR_CHECKPOINT,
                "CKPT/state.json: the setting 'towers' is not a text");
}
