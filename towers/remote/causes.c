/* The causes of failed requests; see causes.h. */
#include "towers/remote/causes.h"

#include <openssl/x509_vfy.h>

enum { PAUSE_LEAST_MS = 500, PAUSE_MOST_MS = 30000 };

static const struct {
    CURLcode code;
    NetCause cause;
} connections[] = {
    {CURLE_COULDNT_RESOLVE_HOST, {NET_CONTACT, "the name of the host cannot be resolved (DNS)"}},
    {CURLE_COULDNT_RESOLVE_PROXY, {NET_CONTACT, "the name of the proxy cannot be resolved (DNS)"}},
    {CURLE_COULDNT_CONNECT, {NET_CONTACT, "the host does not take the connection"}},
    {CURLE_SSL_CONNECT_ERROR, {NET_CONTACT, "TLS: the handshake failed"}},
    {CURLE_PEER_FAILED_VERIFICATION, {NET_FINAL, "TLS: the certificate of the host is not trusted"}},
    {CURLE_SSL_CACERT_BADFILE,
     {NET_FINAL, "TLS: the file of trusted certificates cannot be read",
      "CURL_CA_BUNDLE, else SSL_CERT_FILE, names it: expected a file of certificates (PEM)"}},
    {CURLE_OPERATION_TIMEDOUT, {NET_PASSES, "nothing, or too little, came in time"}},
    {CURLE_PARTIAL_FILE, {NET_PASSES, "the answer was cut off"}},
    {CURLE_RECV_ERROR, {NET_PASSES, "the connection broke off"}},
    {CURLE_SEND_ERROR, {NET_PASSES, "the connection broke off"}},
    {CURLE_GOT_NOTHING, {NET_PASSES, "the server closed the connection without an answer"}},
    {CURLE_HTTP2, {NET_PASSES, "the connection broke off"}},
    {CURLE_HTTP2_STREAM, {NET_PASSES, "the connection broke off"}},
    {CURLE_TOO_MANY_REDIRECTS, {NET_FINAL, "it is redirected again and again"}},
    {CURLE_ABORTED_BY_CALLBACK, {NET_FINAL, "it is redirected from https to http"}},
    {CURLE_UNSUPPORTED_PROTOCOL, {NET_FINAL, "it is redirected to an address that is not allowed here"}},
};

static const struct {
    long answer;
    NetCause cause;
} answers[] = {
    {401, {NET_FINAL, "it demands a sign-in"}},  {403, {NET_FINAL, "it is forbidden"}},
    {404, {NET_FINAL, "it is not there"}},       {405, {NET_FINAL, "such requests are not allowed"}},
    {407, {NET_FINAL, "it demands a sign-in"}},  {408, {NET_PASSES, "the server did not wait longer"}},
    {410, {NET_FINAL, "it is no longer there"}}, {416, {NET_FINAL, "the object is shorter than it was"}},
    {429, {NET_PASSES, "too many requests"}},    {501, {NET_FINAL, "the server does not know such requests"}},
    {503, {NET_PASSES, "the server is busy"}},   {505, {NET_FINAL, "the server does not know this HTTP"}},
};

NetCause net_cause(CURLcode code, long answer)
{
    if (answer >= 400) {
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
            if (answers[i].answer == answer) return answers[i].cause;
        return answer >= 500 ? (NetCause){NET_PASSES, "an error of the server"}
                             : (NetCause){NET_FINAL, "it is refused"};
    }
    for (size_t i = 0; i < sizeof connections / sizeof *connections; i++)
        if (connections[i].code == code) return connections[i].cause;
    return (NetCause){NET_FINAL, curl_easy_strerror(code)};
}

NetCause claim_cause(long answer)
{
    if (answer == 409) return (NetCause){NET_PASSES, "it is just written"};
    if (answer == 412) return (NetCause){NET_FINAL, "it is there already"};
    return net_cause(CURLE_HTTP_RETURNED_ERROR, answer);
}

NetCause certificate_cause(long verified)
{
    NetCause cause = net_cause(CURLE_PEER_FAILED_VERIFICATION, 0);
    switch (verified) {
    case X509_V_OK:
    case X509_V_ERR_UNSPECIFIED: /* libcurl has not asked how its chain is, because it is for another name */
        cause.remedy = "give the address with a name that the certificate has";
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        cause.remedy = "whoever keeps the server must renew it, unless the clock of this machine is wrong";
        break;
    default: cause.remedy = "if you trust who signed it, name a file with that certificate in CURL_CA_BUNDLE"; break;
    }
    return cause;
}

int64_t net_pause_ms(int tries, double chance, int64_t retry_after_s)
{
    int64_t pause = PAUSE_LEAST_MS;
    for (int i = 1; i < tries && pause < PAUSE_MOST_MS; i++) pause *= 2;
    if (pause > PAUSE_MOST_MS) pause = PAUSE_MOST_MS;
    pause -= (int64_t)(0.5 * chance * (double)pause);
    int64_t asked = retry_after_s > INT64_MAX / 1000 ? INT64_MAX : 1000 * retry_after_s;
    return asked > pause ? asked : pause;
}
