/* Profiles of AWS's tools: what is taken of which section. */
#include "tests/support/unit.h"
#include "towers/remote/aws_profile.h"

static AwsProfile parsed(const char *text, const char *name)
{
    AwsProfile p = {0};
    aws_profile_parse(text, strlen(text), name, &p);
    return p;
}

TEST(a_section_by_its_name)
{
    static const char text[] = "aws_access_key_id = outside\n"
                               "[default]\n"
                               "aws_access_key_id = first\n"
                               "[ team ] \r\n"
                               "  # a comment = no setting\n"
                               "aws_access_key_id=AKID\r\n"
                               "aws_secret_access_key =\ta/b+c==  \n"
                               ";region = eu-west-1\n"
                               "region = eu-central-1\n"
                               "region = us-east-2\n"
                               "[profile\tteam2]\n"
                               "region = us-west-2";
    AwsProfile p = parsed(text, "team");
    assert_true(p.found);
    assert_string_equal(p.keys.id, "AKID");
    assert_string_equal(p.keys.secret, "a/b+c==");
    assert_string_equal(p.keys.token, "");
    assert_string_equal(p.region, "eu-central-1");
    assert_null(p.elsewhere);
    assert_string_equal(parsed(text, "default").keys.id, "first");
    assert_string_equal(parsed(text, "default").keys.secret, "");
    assert_string_equal(parsed(text, "team2").region, "us-west-2");
    assert_string_equal(parsed("[profile]\nregion = a", "profile").region, "a");
    static const char *const none[] = {"tea", "team3", "", "profile", "profile team2"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (parsed(text, none[i]).found) fail_msg("there is no '%s'", none[i]);
}

TEST(the_second_file_adds_what_the_first_does_not_say)
{
    AwsProfile p = parsed("[a]\naws_access_key_id = one\n", "a");
    static const char config[] = "[profile a]\naws_access_key_id = two\nregion = r-1\nendpoint_url = http://h:9000\n";
    aws_profile_parse(config, strlen(config), "a", &p);
    assert_string_equal(p.keys.id, "one");
    assert_string_equal(p.region, "r-1");
    assert_string_equal(p.endpoint, "http://h:9000");
}

TEST(indented_lines_belong_to_the_setting_above)
{
    AwsProfile p = parsed(
        "[a]\nec2 =\n  addressing_style = none\n  region = r-0\ns3 =\n  region = r-1\n\n\taddressing_style = virtual\n"
        "region = r-2\n  addressing_style = path\n",
        "a");
    assert_string_equal(p.style, "virtual");
    assert_string_equal(p.region, "r-2");
    assert_string_equal(parsed("[a]\naddressing_style = path\n", "a").style, "");
    assert_string_equal(parsed("[b]\ns3 =\n[a]\n  addressing_style = path\n", "a").style, "");
}

TEST(keys_are_those_of_one_file)
{
    AwsProfile p = parsed("[a]\naws_access_key_id = one\naws_secret_access_key = two\n", "a");
    static const char config[] =
        "[profile a]\naws_session_token = stale\naws_secret_access_key = other\nregion = r-1\n";
    aws_profile_parse(config, strlen(config), "a", &p);
    assert_string_equal(p.keys.secret, "two");
    assert_string_equal(p.keys.token, "");
    assert_string_equal(p.region, "r-1");
}

TEST(forms_that_other_tools_read)
{
    AwsProfile p = parsed("\xEF\xBB\xBF[profile 'my team']\n   AWS_Access_Key_ID = AKID\n   Region = r-1\n   s3 =\n    "
                          " addressing_style = path\n"
                          "   services = mine\n",
                          "my team");
    assert_string_equal(p.keys.id, "AKID");
    assert_string_equal(p.region, "r-1");
    assert_string_equal(p.style, "path");
    assert_true(p.services);
    assert_true(parsed("[profile \"b\"]\n", "b").found);
    assert_false(parsed("[profile \"b]\n", "b").found);
}

TEST(keys_that_come_from_elsewhere)
{
    assert_string_equal(parsed("[a]\nsso_session = x\n", "a").elsewhere, "sso_session");
    assert_string_equal(parsed("[a]\nrole_arn = x\n", "a").elsewhere, "role_arn");
    assert_null(parsed("[b]\nrole_arn = x\n[a]\n", "a").elsewhere);
}

TEST(a_value_that_does_not_fit_is_named)
{
    static char text[AWS_SECRET_BYTES + 64];
    int before = snprintf(text, sizeof text, "[a]\naws_secret_access_key = ");
    memset(text + before, 'x', AWS_SECRET_BYTES - 1);
    AwsProfile p = parsed(text, "a");
    assert_int_equal(strlen(p.keys.secret), AWS_SECRET_BYTES - 1);
    assert_null(p.overlong);
    text[before + AWS_SECRET_BYTES - 1] = 'x';
    p = parsed(text, "a");
    assert_string_equal(p.keys.secret, "");
    assert_string_equal(p.overlong, "aws_secret_access_key");
}
