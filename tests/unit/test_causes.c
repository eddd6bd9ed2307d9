/* Which failed requests are tried again, and after which pauses. */
#include <openssl/x509_vfy.h>

#include "tests/support/unit.h"
#include "towers/remote/causes.h"

TEST(what_may_pass_is_tried_again)
{
    static const long passing[] = {408, 429, 500, 502, 503, 504, 599},
                      final[] = {400, 401, 403, 404, 405, 407, 409, 410, 412, 416, 451, 501, 505};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (net_cause(CURLE_HTTP_RETURNED_ERROR, passing[i]).retry != NET_PASSES) fail_msg("%ld", passing[i]);
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (net_cause(CURLE_HTTP_RETURNED_ERROR, final[i]).retry != NET_FINAL) fail_msg("%ld", final[i]);
    assert_int_equal(claim_cause(409).retry, NET_PASSES); /* of a write that must find nothing */
    assert_int_equal(claim_cause(412).retry, NET_FINAL);
    assert_int_equal(claim_cause(503).retry, NET_PASSES);
    assert_int_equal(net_cause(CURLE_OPERATION_TIMEDOUT, 0).retry, NET_PASSES);
    assert_int_equal(net_cause(CURLE_PARTIAL_FILE, 200).retry, NET_PASSES);
    assert_int_equal(net_cause(CURLE_RECV_ERROR, 206).retry, NET_PASSES);
    assert_int_equal(net_cause(CURLE_COULDNT_RESOLVE_HOST, 0).retry, NET_CONTACT);
    assert_int_equal(net_cause(CURLE_PEER_FAILED_VERIFICATION, 0).retry, NET_FINAL);
    assert_int_equal(net_cause(CURLE_TOO_MANY_REDIRECTS, 302).retry, NET_FINAL);
}

TEST(a_certificate_says_what_to_do)
{
    static const struct {
        long verified;
        const char *remedy;
    } wanted[] = {{X509_V_OK, "a name that the certificate has"},
                  {X509_V_ERR_UNSPECIFIED, "a name that the certificate has"},
                  {X509_V_ERR_CERT_HAS_EXPIRED, "must renew it"},
                  {X509_V_ERR_CERT_NOT_YET_VALID, "the clock of this machine"},
                  {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, "CURL_CA_BUNDLE"},
                  {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, "CURL_CA_BUNDLE"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        NetCause cause = certificate_cause(wanted[i].verified);
        assert_int_equal(cause.retry, NET_FINAL);
        assert_non_null(strstr(cause.remedy, wanted[i].remedy));
    }
}

TEST(pauses_double_up_to_half_a_minute)
{
    static const int64_t wanted[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(net_pause_ms(i + 1, 0, 0), wanted[i]);
        int64_t least = net_pause_ms(i + 1, 0.999, 0);
        assert_in_range(least, wanted[i] / 2, wanted[i] / 2 + wanted[i] / 500);
    }
    assert_int_equal(net_pause_ms(1000000, 0, 0), 30000);
}

TEST(a_server_may_ask_for_longer_pauses_but_not_for_shorter_ones)
{
    assert_int_equal(net_pause_ms(1, 0, 7), 7000);
    assert_int_equal(net_pause_ms(5, 0, 7), 8000);
    assert_int_equal(net_pause_ms(1, 0, INT64_MAX), INT64_MAX);
}
